//! Plots as SVG inside a page: bars over durations, and a curve with its confidence.

use std::fmt::Write;

use perf_core::{Histogram, Nanos};

use super::html::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;

/// Shares of durations by number and by time, in bins that double (DxPU, Figures 5 and 6).
#[derive(Clone, Debug)]
pub struct Bars {
    /// Start of the bin in ns, share by number, share by time (each 0 to 1).
    bins: Vec<(u64, f64, f64)>,
}

impl Bars {
    /// The bars of a histogram; none of an empty one.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        let (count, nanos) = (histogram.count(), histogram.nanos());
        if count == 0 {
            return None;
        }
        let mut bins: Vec<(u64, f64, f64)> = Vec::new();
        for (bin, number, time) in histogram.bins() {
            let start = bin.start();
            let octave = if start == 0 { 0 } else { 1 << start.ilog2() };
            let number = number as f64 / count as f64;
            let time = if nanos == 0 { 0.0 } else { time as f64 / nanos as f64 };
            // Bins come in order; those without any between two are drawn empty.
            while let Some(&(last, ..)) = bins.last()
                && last != octave
            {
                bins.push((if last == 0 { 1 } else { last * 2 }, 0.0, 0.0));
            }
            match bins.last_mut() {
                Some(bar) => *bar = (octave, bar.1 + number, bar.2 + time),
                None => bins.push((octave, number, time)),
            }
        }
        Some(Self { bins })
    }

    /// The plot, described by `title` for those who cannot see it.
    pub fn svg(&self, title: &str) -> String {
        let most = self.bins.iter().map(|bin| bin.1.max(bin.2)).fold(0.01, f64::max);
        let mut svg = open(title);
        let step = (WIDTH - LEFT - RIGHT) / self.bins.len() as f64;
        shares(&mut svg, most, |share| down(share / most));
        for (index, (start, number, time)) in self.bins.iter().enumerate() {
            let x = LEFT + step * index as f64;
            let bar = (step * 0.38).max(1.0);
            for (share, class, offset) in [(number, "number", 0.1), (time, "time", 0.5)] {
                let y = down(share / most);
                let height = HEIGHT - BOTTOM - y;
                let left = x + step * offset;
                let _ = write!(
                    svg,
                    "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" \
                     height=\"{height:.1}\"><title>{:.1} % {} from {}</title></rect>",
                    100.0 * share,
                    if class == "number" { "by number" } else { "by time" },
                    Nanos(*start),
                );
            }
            if index.is_multiple_of(self.bins.len().div_ceil(12)) {
                label(&mut svg, x + step / 2.0, &Nanos(*start).to_string());
            }
        }
        svg + "</svg>"
    }
}

/// One point of a curve with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where, in the unit of the axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The interval's ends.
    pub interval: (f64, f64),
}

/// A curve over a linear axis.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its points, x growing; at least one.
    pub points: Vec<Point>,
    /// The horizontal axis, with its unit.
    pub x_title: String,
    /// A level that is drawn through the plot.
    pub level: f64,
}

impl Curve {
    /// The plot, described by `title` for those who cannot see it.
    pub fn svg(&self, title: &str) -> String {
        let values = self.points.iter().flat_map(|point| [point.interval.0, point.interval.1]);
        let (low, high) = values
            .chain([self.level, 1.0])
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = ((low * 20.0 - 0.5).floor() / 20.0, (high * 20.0 + 0.5).ceil() / 20.0);
        let right = self.points.iter().map(|point| point.x).fold(0.0, f64::max).max(1e-9);
        let across = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * x / right;
        let y_of = |y: f64| down((y - low) / (high - low));
        let mut svg = open(title);
        let steps = 5;
        for step in 0..=steps {
            let value = low + (high - low) * f64::from(step) / f64::from(steps);
            grid(&mut svg, y_of(value), &format!("{:.0} %", 100.0 * value));
            let x = right * f64::from(step) / f64::from(steps);
            label(&mut svg, across(x), &format!("{x:.1}"));
        }
        let _ = write!(
            svg,
            "<line class=\"level\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT,
            y = y_of(self.level)
        );
        let path: Vec<String> = self
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", across(point.x), y_of(point.y)))
            .collect();
        let _ = write!(svg, "<polyline class=\"curve\" points=\"{}\"/>", path.join(" "));
        for point in &self.points {
            let x = across(point.x);
            let _ = write!(
                svg,
                "<line class=\"interval\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" \
                 y2=\"{:.1}\"/><circle class=\"point\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3\">\
                 <title>{:.2}: {:.1} % ({:.1} to {:.1})</title></circle>",
                y_of(point.interval.0),
                y_of(point.interval.1),
                y_of(point.y),
                point.x,
                100.0 * point.y,
                100.0 * point.interval.0,
                100.0 * point.interval.1,
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, WIDTH),
            HEIGHT - 6.0,
            escape(&self.x_title)
        );
        svg + "</svg>"
    }
}

fn open(title: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", escape(title))
}

/// The height of a value from 0 to 1.
fn down(value: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value
}

fn grid(svg: &mut String, y: f64, text: &str) {
    let _ = write!(
        svg,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 4.0,
    );
}

fn label(svg: &mut String, x: f64, text: &str) {
    let y = HEIGHT - BOTTOM + 16.0;
    let text = escape(text);
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>");
}

/// Lines for a quarter, a half, … of the largest share.
fn shares(svg: &mut String, most: f64, y: impl Fn(f64) -> f64) {
    for quarter in 0..=4 {
        let share = most * f64::from(quarter) / 4.0;
        grid(svg, y(share), &format!("{:.0} %", 100.0 * share));
    }
}
