//! What was measured, for people and for programs.

use serde::Serialize;
use std::fmt;

/// What a figure is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "aim", content = "wanted", rename_all = "kebab-case")]
pub(crate) enum Target {
    /// No more than this.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

impl Target {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// What it stands beside: the least, or the most, that the machine allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

impl Figure {
    pub(crate) fn new(name: &'static str, value: f64, unit: &'static str) -> Self {
        Self { name, value, unit, floor: None, target: None, met: None }
    }

    pub(crate) fn floor(self, floor: f64) -> Self {
        Self { floor: Some(floor), ..self }
    }

    pub(crate) fn target(self, target: Target) -> Self {
        Self { target: Some(target), met: Some(target.met(self.value)), ..self }
    }
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The pool, in words.
    pool: String,
    figures: Vec<Figure>,
}

impl Report {
    /// Without figures yet.
    pub(crate) fn new(pool: String) -> Self {
        Self { pool, figures: Vec::new() }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        eprintln!("{figure}");
        self.figures.push(figure);
    }

    pub(crate) fn all_met(&self) -> bool {
        self.figures.iter().all(|figure| figure.met != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("figures are JSON")
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<52} {:>12.2} {:<10}", self.name, self.value, self.unit)?;
        match self.floor {
            Some(floor) => write!(f, " floor {floor:>10.2}")?,
            None => write!(f, " {:16}", "")?,
        }
        match (self.target, self.met) {
            (Some(Target::AtMost(bound)), met) => write!(f, "  ≤ {bound} {}", verdict(met)),
            (Some(Target::AtLeast(bound)), met) => write!(f, "  ≥ {bound} {}", verdict(met)),
            (None, _) => Ok(()),
        }
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    if met == Some(true) { "met" } else { "MISSED" }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.pool)?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{figure}"))
    }
}

/// Middle and tail of many times.
pub(crate) struct Quantiles {
    sorted: Vec<f64>,
}

impl Quantiles {
    /// Of some values, at least one.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }

    /// The value that this part of all is not above.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let index = (part * self.sorted.len() as f64).ceil() as usize;
        self.sorted[index.clamp(1, self.sorted.len()) - 1]
    }
}
