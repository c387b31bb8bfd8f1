//! What was measured: figures with their spread, targets, and series for plots.

use serde::Serialize;

/// Median and extremes of some repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of these figures; there is one at least.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = figures.into_iter().collect();
        all.sort_unstable_by(f64::total_cmp);
        assert!(!all.is_empty(), "a spread of no figures");
        let middle = all.len() / 2;
        let median =
            if all.len() % 2 == 1 { all[middle] } else { (all[middle - 1] + all[middle]) / 2.0 };
        Self { median, min: all[0], max: all[all.len() - 1] }
    }
}

/// One figure of a measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    #[serde(flatten)]
    pub(crate) spread: Spread,
}

/// Which side of its target a figure is to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aim {
    AtMost,
    AtLeast,
}

/// Which of the figures of all turns is held to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Held {
    Median,
    /// The one that is farthest on the wrong side: for what must never be, in no turn.
    Worst,
}

/// A target, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) aim: Aim,
    pub(crate) held: Held,
    pub(crate) wanted: f64,
    /// The figure that is held to it.
    pub(crate) got: f64,
    pub(crate) met: bool,
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over one axis, which is logarithmic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
}

/// Everything that one measure gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Results {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) figures: Vec<Figure>,
    pub(crate) targets: Vec<Target>,
    pub(crate) plots: Vec<Plot>,
    /// What could not be measured here, and why.
    pub(crate) skipped: Vec<String>,
    /// Why it ended early.
    pub(crate) failed: Option<String>,
}

impl Results {
    pub(crate) fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, ..Self::default() }
    }

    /// Adds a figure and gives its spread.
    pub(crate) fn figure(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        figures: impl IntoIterator<Item = f64>,
    ) -> Spread {
        let spread = Spread::of(figures);
        self.figures.push(Figure { name: name.into(), unit, spread });
        spread
    }

    /// Adds a figure with a target: for its median, or for every turn, since a median hides the
    /// turns that miss it.
    pub(crate) fn aimed(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        figures: impl IntoIterator<Item = f64>,
        held: Held,
        aim: Aim,
        wanted: f64,
    ) {
        let name = name.into();
        let spread = self.figure(name.clone(), unit, figures);
        let got = match (held, aim) {
            (Held::Median, _) => spread.median,
            (Held::Worst, Aim::AtMost) => spread.max,
            (Held::Worst, Aim::AtLeast) => spread.min,
        };
        let met = match aim {
            Aim::AtMost => got <= wanted,
            Aim::AtLeast => got >= wanted,
        };
        self.targets.push(Target { name, aim, held, wanted, got, met });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_all() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn a_target_is_met_on_its_side() {
        let mut results = Results::new("x", "");
        results.aimed("a", "", [1.0], Held::Median, Aim::AtMost, 1.0);
        results.aimed("b", "", [1.0], Held::Median, Aim::AtLeast, 1.1);
        assert_eq!(results.targets.iter().map(|t| t.met).collect::<Vec<_>>(), [true, false]);
        assert_eq!(results.figures.len(), 2);
    }

    #[test]
    fn one_turn_that_misses_it_misses_a_target_of_each() {
        let mut results = Results::new("x", "");
        let turns = [1.0, 20.0, 2.0];
        results.aimed("median", "", turns, Held::Median, Aim::AtMost, 10.0);
        results.aimed("each", "", turns, Held::Worst, Aim::AtMost, 10.0);
        results.aimed("each", "", turns, Held::Worst, Aim::AtLeast, 2.0);
        let came = results.targets.iter().map(|target| (target.got, target.met));
        assert_eq!(came.collect::<Vec<_>>(), [(2.0, true), (20.0, false), (1.0, false)]);
    }
}
