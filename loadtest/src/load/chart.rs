//! Line charts as SVG, drawn without any script.

use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 24.0;
/// Seconds without a point that a line does not bridge.
const GAP: f64 = 2.5;
/// Told apart also by people who see few colours (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

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

/// A chart of the seconds from 0 to `end`.
#[must_use]
pub fn chart(title: &str, unit: &str, end: f64, lines: &[Line], marks: &[Mark]) -> String {
    let values = lines.iter().flat_map(|line| line.points.iter());
    let top = round_up(values.map(|(_, value)| *value).fold(0.0, f64::max));
    let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x = |at: f64| LEFT + wide * (at / end.max(1.0)).clamp(0.0, 1.0);
    let y = |value: f64| TOP + high * (1.0 - (value / top).clamp(0.0, 1.0));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escape(title)
    );
    for mark in marks {
        let (from, to) = (x(mark.from), x(mark.to));
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{high}\" class=\"mark\"/>\
             <text x=\"{from:.1}\" y=\"{:.1}\" class=\"small\">{}</text>",
            (to - from).max(1.5),
            TOP - 4.0,
            escape(&mark.name)
        );
    }
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"small\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            short(value)
        );
    }
    for part in 0..=6 {
        let at = end * f64::from(part) / 6.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"small\" text-anchor=\"middle\">{at:.0} s</text>",
            x(at),
            HEIGHT - 6.0
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        // Where nothing was seen for a while, nothing is drawn.
        for part in line.points.chunk_by(|one, next| next.0 - one.0 <= GAP) {
            let points = part.iter();
            let points: Vec<String> = points
                .map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                points.join(" ")
            );
        }
    }
    svg.push_str("</svg>\n");
    let mut text = format!(
        "<h2>{} <small>({})</small></h2>\n{svg}<p class=\"key\">",
        escape(title),
        escape(unit)
    );
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let _ = write!(
            text,
            "<span style=\"color:{colour}\">&#9644; {}</span> ",
            escape(&line.name)
        );
    }
    text.push_str("</p>\n");
    text
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

fn short(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
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

    #[test]
    fn a_line_does_not_bridge_what_nobody_saw() {
        let line = Line {
            name: "worker-1".to_owned(),
            points: vec![(0.0, 1.0), (1.0, 1.0), (5.0, 1.0), (6.0, 1.0)],
        };
        let text = chart("memory", "MiB", 6.0, &[line], &[]);
        assert_eq!(text.matches("<polyline").count(), 2);
    }

    #[test]
    fn draws_lines_and_marks() {
        let line = Line {
            name: "a<b".to_owned(),
            points: vec![(0.0, 1.0), (1.0, 130.0)],
        };
        let mark = Mark {
            from: 0.2,
            to: 0.4,
            name: "gateway-1".to_owned(),
        };
        let text = chart("p99", "ms", 1.0, &[line], &[mark]);
        assert!(
            text.contains("a&lt;b") && text.contains("gateway-1"),
            "{text}"
        );
        assert!(text.contains(">160<"), "the scale ends at 160: {text}");
        assert_eq!(text.matches("<polyline").count(), 1);
    }

    #[test]
    fn scales_are_round() {
        for (value, top) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (3.1, 4.0),
            (51.0, 60.0),
            (0.041, 0.05),
        ] {
            assert!(
                (round_up(value) - top).abs() < 1e-9,
                "{value}: {}",
                round_up(value)
            );
        }
    }
}
