//! Charts over time as SVG, drawn without any script.

use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// For each row of names above the plot.
const ROW: f64 = 13.0;
const PLOT: f64 = 190.0;
const BOTTOM: f64 = 22.0;
/// Of a letter in the names of marks, roughly.
const LETTER: f64 = 6.0;
/// Seconds without a point that a line does not bridge.
const GAP: f64 = 2.5;
/// Told apart also by people who see few colours (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#999999",
];
/// Lines beyond the colours are dashed.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""];

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it shows.
    pub name: String,
    /// Seconds from the start, and values.
    pub points: Vec<(f64, f64)>,
}

/// A time in which something was broken.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Seconds from the start.
    pub from: f64,
    /// The same.
    pub to: f64,
    /// What.
    pub name: String,
}

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A line from value to value.
    Lines,
    /// A bar a second, upon one another.
    Bars,
}

/// What a chart is about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Above it.
    pub title: &'a str,
    /// Of its values.
    pub unit: &'a str,
    /// How they are drawn.
    pub shape: Shape,
    /// It shows the seconds from 0 to this one.
    pub end: f64,
}

/// Where a chart's points lie.
#[derive(Clone, Copy)]
struct Frame {
    end: f64,
    top: f64,
    value_max: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (at / self.end.max(1.0)).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + PLOT * (1.0 - (value / self.value_max).clamp(0.0, 1.0))
    }

    fn height(&self) -> f64 {
        self.top + PLOT + BOTTOM
    }
}

/// A chart with its title and key.
#[must_use]
pub fn chart(about: About<'_>, lines: &[Line], marks: &[Mark]) -> String {
    let mut text = format!(
        "<section>\n<h2>{} <small>{}</small></h2>\n",
        escape(about.title),
        escape(about.unit)
    );
    if lines.iter().all(|line| line.points.is_empty()) {
        text.push_str("<p class=\"none\">nothing was seen</p>\n</section>\n");
        return text;
    }
    let placed = rows(marks, about.end);
    let names = placed.iter().map(|(_, row)| row + 1).max();
    let frame = Frame {
        end: about.end,
        top: 6.0 + ROW * number(names.unwrap_or(0)),
        value_max: round_up(highest(about.shape, lines)),
    };
    let _ = writeln!(
        text,
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">",
        frame.height(),
        escape(about.title)
    );
    draw_marks(&mut text, &frame, &placed);
    draw_axes(&mut text, &frame);
    match about.shape {
        Shape::Lines => draw_lines(&mut text, &frame, lines),
        Shape::Bars => draw_bars(&mut text, &frame, lines),
    }
    text.push_str("</svg>\n<p class=\"key\">");
    for (line, (colour, dash)) in lines.iter().zip(styles()) {
        let swatch = match about.shape {
            Shape::Lines => {
                format!("<path d=\"M0 5H22\" stroke=\"{colour}\" stroke-width=\"2.5\"{dash}/>")
            }
            Shape::Bars => format!("<path d=\"M6 0H16V10H6Z\" fill=\"{colour}\"/>"),
        };
        let _ = write!(
            text,
            "<span><svg class=\"swatch\" viewBox=\"0 0 22 10\">{swatch}</svg>{}</span> ",
            escape(&line.name)
        );
    }
    text.push_str("</p>\n</section>\n");
    text
}

fn styles() -> impl Iterator<Item = (&'static str, &'static str)> {
    let dashes = DASHES.iter().cycle();
    dashes.flat_map(|dash| COLOURS.iter().map(move |colour| (*colour, *dash)))
}

/// The highest value, of bars that of a whole pile.
fn highest(shape: Shape, lines: &[Line]) -> f64 {
    let values = lines.iter().flat_map(|line| &line.points);
    match shape {
        Shape::Lines => values.map(|(_, value)| *value).fold(0.0, f64::max),
        Shape::Bars => {
            let at = |at: f64| values.clone().filter(move |(then, _)| *then == at);
            let piles = values
                .clone()
                .map(|(then, _)| at(*then).map(|(_, value)| value).sum());
            piles.fold(0.0, f64::max)
        }
    }
}

/// The row of each mark's name: names that would lie upon one another get rows of their own.
fn rows(marks: &[Mark], end: f64) -> Vec<(Mark, usize)> {
    let frame = Frame {
        end,
        top: 0.0,
        value_max: 1.0,
    };
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = Vec::new();
    for mark in marks {
        let from = start_of_name(&frame, mark);
        let free = ends.iter().position(|end| *end <= from);
        let row = free.unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0.0);
        }
        ends[row] = from + LETTER * number(mark.name.chars().count() + 2);
        placed.push((mark.clone(), row));
    }
    placed
}

/// A name near the right end begins earlier, so that it ends within the chart.
fn start_of_name(frame: &Frame, mark: &Mark) -> f64 {
    let latest = WIDTH - LETTER * number(mark.name.chars().count());
    frame.x(mark.from).min(latest)
}

fn draw_marks(text: &mut String, frame: &Frame, placed: &[(Mark, usize)]) {
    for (mark, row) in placed {
        let (from, to) = (frame.x(mark.from), frame.x(mark.to));
        let name = frame.top - 5.0 - ROW * number(*row);
        let _ = writeln!(
            text,
            "<rect x=\"{from:.1}\" y=\"{name:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"mark\"/>\
             <text x=\"{:.1}\" y=\"{name:.1}\" class=\"small\">{}</text>",
            (to - from).max(1.5),
            frame.top + PLOT - name,
            start_of_name(frame, mark),
            escape(&mark.name)
        );
    }
}

fn draw_axes(text: &mut String, frame: &Frame) {
    for part in 0..=4 {
        let value = frame.value_max * f64::from(part) / 4.0;
        let at = frame.y(value);
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"small\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            short(value)
        );
    }
    let step = step(frame.end);
    let mut at = 0.0;
    while at <= frame.end {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"small\" text-anchor=\"middle\">{}</text>",
            frame.x(at),
            frame.height() - 6.0,
            time(at)
        );
        at += step;
    }
}

fn draw_lines(text: &mut String, frame: &Frame, lines: &[Line]) {
    for (line, (colour, dash)) in lines.iter().zip(styles()) {
        // Where nothing was seen for a while, nothing is drawn.
        for part in line.points.chunk_by(|one, next| next.0 - one.0 <= GAP) {
            let points = part.iter();
            let points: Vec<String> = points
                .map(|(at, value)| format!("{:.1},{:.1}", frame.x(*at), frame.y(*value)))
                .collect();
            if let [(at, value)] = part {
                let _ = writeln!(
                    text,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"{colour}\"/>",
                    frame.x(*at),
                    frame.y(*value)
                );
            }
            let _ = writeln!(
                text,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/>",
                points.join(" ")
            );
        }
    }
}

fn draw_bars(text: &mut String, frame: &Frame, lines: &[Line]) {
    let mut piles: Vec<(f64, f64)> = Vec::new();
    for (line, (colour, _)) in lines.iter().zip(styles()) {
        for (at, value) in line.points.iter().filter(|(_, value)| *value > 0.0) {
            let pile = piles.iter().position(|(then, _)| then == at);
            let pile = pile.unwrap_or_else(|| {
                piles.push((*at, 0.0));
                piles.len() - 1
            });
            let below = piles[pile].1;
            piles[pile].1 += value;
            let (from, to) = (frame.x(*at), frame.x(at + 1.0));
            let (top, bottom) = (frame.y(below + value), frame.y(below));
            let _ = writeln!(
                text,
                "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                (to - from - 0.5).max(1.0),
                bottom - top
            );
        }
    }
}

/// The next number that has a round quarter; 1 for nothing.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

/// Seconds between two labels: a round time, at most a dozen of them.
fn step(end: f64) -> f64 {
    let steps = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0,
    ];
    let step = steps.into_iter().find(|step| end / step <= 12.0);
    step.unwrap_or(end / 12.0).max(1.0)
}

fn time(at: f64) -> String {
    if at >= 60.0 && at % 60.0 == 0.0 {
        format!("{:.0} min", at / 60.0)
    } else {
        format!("{at:.0} s")
    }
}

fn short(value: f64) -> String {
    if value == 0.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "few enough to be exact")]
fn number(count: usize) -> f64 {
    count as f64
}

/// Text for HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(title: &str, shape: Shape) -> About<'_> {
        About {
            title,
            unit: "ms",
            shape,
            end: 10.0,
        }
    }

    fn mark(from: f64, name: &str) -> Mark {
        Mark {
            from,
            to: from + 1.0,
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_chart_shows_lines_and_marks_and_no_markup_of_others() {
        let points = vec![(0.0, 1.0), (1.0, 5.0), (2.0, 3.0), (9.0, 3.0)];
        let line = Line {
            name: "a<b".to_owned(),
            points,
        };
        let svg = chart(
            about("<script>", Shape::Lines),
            std::slice::from_ref(&line),
            &[mark(2.0, "redis killed")],
        );
        assert!(svg.contains("redis killed") && svg.contains("a&lt;b"));
        assert!(!svg.contains("<script"));
        assert_eq!(svg.matches("<polyline").count(), 2, "a gap parts a line");
        let bars = chart(about("errors", Shape::Bars), &[line.clone(), line], &[]);
        assert!(!bars.contains("<polyline"));
        let none = chart(about("nothing", Shape::Lines), &[], &[]);
        assert!(none.contains("nothing was seen") && !none.contains("<svg"));
    }

    #[test]
    fn names_do_not_lie_upon_one_another() {
        let marks = [
            mark(1.0, "gateway-1 killed"),
            mark(1.5, "worker-1 killed"),
            mark(8.0, "x"),
        ];
        let placed = rows(&marks, 10.0);
        let of: Vec<usize> = placed.iter().map(|(_, row)| *row).collect();
        assert_eq!(of, [0, 1, 0]);
    }

    #[test]
    fn scales_are_round() {
        assert_eq!(round_up(0.0), 1.0);
        assert_eq!(round_up(55.0), 60.0);
        assert!((round_up(0.13) - 0.16).abs() < 1e-9);
        assert_eq!((step(24.0), step(60.0), step(3_600.0)), (2.0, 5.0, 300.0));
        assert_eq!(
            (time(45.0), time(120.0)),
            ("45 s".to_owned(), "2 min".to_owned())
        );
    }
}
