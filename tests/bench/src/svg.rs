//! Plots as SVG: lines over a logarithmic axis.

use crate::figures::{Plot, Series};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
const COLOURS: [&str; 4] = ["#0b62a4", "#d1603d", "#3f7d20", "#7a4988"];

/// A plot, or nothing when it has no points.
pub(crate) fn draw(plot: &Plot) -> String {
    let Some(axes) = Axes::of(plot) else { return String::new() };
    let title = escape(&plot.title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{title}</text>\n"
    );
    axes.label(&mut svg, plot);
    for (number, series) in plot.series.iter().enumerate() {
        axes.line(&mut svg, number, series);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where values are in the picture: along x by their logarithms, along y from 0.
struct Axes {
    /// The places along x that have points, least first.
    places: Vec<f64>,
    /// The value at the upper end of y, and from one line to the next.
    top: f64,
    step: f64,
}

impl Axes {
    fn of(plot: &Plot) -> Option<Self> {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let mut places: Vec<f64> = points().map(|point| point.0).collect();
        places.sort_unstable_by(f64::total_cmp);
        places.dedup();
        if places.is_empty() {
            return None;
        }
        let high = points().map(|point| point.1).fold(0.0, f64::max);
        let step = round_step(high / 5.0);
        let top = (high / step).ceil().max(1.0) * step;
        Some(Self { places, top, step })
    }

    fn x(&self, value: f64) -> f64 {
        let (least, most) = (self.places[0], self.places[self.places.len() - 1]);
        let width = (most / least).ln().max(f64::MIN_POSITIVE);
        LEFT + (value / least).ln() / width * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)
    }

    /// What the axes are, their values, and lines across at those of y.
    fn label(&self, svg: &mut String, plot: &Plot) {
        text(svg, (WIDTH / 2.0, HEIGHT - 22.0), "middle", &plot.x);
        text(svg, (LEFT - 6.0, TOP - 8.0), "end", &plot.y);
        for &x in &self.places {
            text(svg, (self.x(x), HEIGHT - BOTTOM + 16.0), "middle", &format!("{x}"));
        }
        let lines = (0..).map(|n| f64::from(n) * self.step).take_while(|y| *y <= self.top);
        for value in lines {
            let (y, right) = (self.y(value), WIDTH - RIGHT);
            text(svg, (LEFT - 6.0, y + 4.0), "end", &format!("{value}"));
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
        }
    }

    /// A series with its points and its name.
    fn line(&self, svg: &mut String, number: usize, series: &Series) {
        let colour = COLOURS[number % COLOURS.len()];
        let points = || series.points.iter().map(|&(x, y)| (self.x(x), self.y(y)));
        let path: Vec<String> = points().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in points() {
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (x, y) = (LEFT + 220.0 * number as f64, HEIGHT - 6.0);
        let name = escape(&series.name);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">● {name}</text>");
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// 1, 2 or 5 times a power of ten: the least that is not below.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|s| *s >= step)
        .unwrap_or(step)
}

/// Text in XML or HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (raw, round) in [(0.7, 1.0), (1.0, 1.0), (130.0, 200.0), (0.021, 0.05), (6.0, 10.0)] {
            assert!((round_step(raw) - round).abs() < 1e-9, "{raw}");
        }
    }

    #[test]
    fn every_point_is_inside_and_text_is_escaped() {
        let series = vec![Series { name: "a<b".into(), points: vec![(1.0, 5.0), (256.0, 700.0)] }];
        let plot = Plot { title: "t".into(), x: "x".into(), y: "y".into(), series };
        let svg = draw(&plot);
        assert!(svg.contains("a&lt;b") && svg.matches("<circle").count() == 2);
        assert!(svg.contains("cx=\"70.0\"") && svg.contains("cx=\"700.0\""), "{svg}");
        assert_eq!(draw(&Plot { series: vec![], ..plot }), "");
    }
}
