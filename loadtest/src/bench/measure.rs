//! Measured several times: the middle and how far the others lie apart.

use serde::Serialize;

/// The same figure, several times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of these figures; `None` of none.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Spread> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, *sorted.get(middle)?)
        } else {
            *sorted.get(middle)?
        };
        Some(Spread {
            median,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// One figure.
    #[must_use]
    pub fn one(figure: f64) -> Spread {
        Spread {
            median: figure,
            min: figure,
            max: figure,
        }
    }

    /// The middle and both ends, with so many digits behind the point.
    #[must_use]
    pub fn told(&self, digits: usize) -> String {
        if (self.max - self.min).abs() < f64::EPSILON {
            return format!("{:.digits$}", self.median);
        }
        format!(
            "{:.digits$} ({:.digits$}–{:.digits$})",
            self.median, self.min, self.max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_told_with_both_ends() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[2.0]), Some(Spread::one(2.0)));
        let odd = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd.told(1), "2.0 (1.0–3.0)");
        let even = Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(even.told(1), "2.5 (1.0–4.0)");
    }
}
