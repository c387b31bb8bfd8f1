//! Plots as SVG: lines over a logarithmic axis.

use crate::figures::Plot;
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
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let (mut least, mut most, mut high) = (f64::MAX, f64::MIN, 0.0_f64);
    for &(x, y) in points() {
        (least, most, high) = (least.min(x), most.max(x), high.max(y));
    }
    if points().next().is_none() {
        return String::new();
    }
    let step = round_step(high / 5.0);
    let top = (high / step).ceil().max(1.0) * step;
    let width = (most / least).ln().max(f64::MIN_POSITIVE);
    let at_x = |x: f64| LEFT + (x / least).ln() / width * (WIDTH - LEFT - RIGHT);
    let at_y = |y: f64| HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
        escape(&plot.title)
    );
    let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    };
    text(WIDTH / 2.0, HEIGHT - 22.0, "middle", &plot.x);
    text(LEFT - 6.0, TOP - 8.0, "end", &plot.y);
    let mut places: Vec<f64> = points().map(|point| point.0).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    for &x in &places {
        text(at_x(x), HEIGHT - BOTTOM + 16.0, "middle", &format!("{x}"));
    }
    let lines = (0..).map(|n| f64::from(n) * step).take_while(|y| *y <= top);
    for y in lines.clone() {
        text(LEFT - 6.0, at_y(y) + 4.0, "end", &format!("{y}"));
    }
    for y in lines {
        let (y, right) = (at_y(y), WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
        );
    }
    for (number, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> =
            series.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", at_x(x), at_y(y))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for point in &path {
            let (x, y) = point.split_once(',').expect("written with a comma");
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let x = LEFT + 220.0 * number as f64;
        let y = HEIGHT - 6.0;
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">● {}</text>",
            escape(&series.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
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
    use crate::figures::Series;

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
