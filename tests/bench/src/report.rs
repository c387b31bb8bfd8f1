//! Results for people: a table on the terminal, and a page with plots.

use crate::figures::{Aim, Held, Results, Target};
use crate::svg::{draw, escape};
use std::fmt::Write;

/// The table of one measure.
pub(crate) fn table(results: &Results) -> String {
    let mut text = format!("\n{}: {}\n", results.name, results.about);
    if !results.figures.is_empty() {
        let _ = writeln!(text, "  {:58} {:>10} {:>10} {:>10}", "", "median", "least", "most");
    }
    for figure in &results.figures {
        let [median, min, max] =
            [figure.spread.median, figure.spread.min, figure.spread.max].map(short);
        let name = if figure.unit.is_empty() {
            figure.name.clone()
        } else {
            format!("{}, {}", figure.name, figure.unit)
        };
        let _ = writeln!(text, "  {name:58} {median:>10} {min:>10} {max:>10}");
    }
    for target in &results.targets {
        let _ = writeln!(text, "  target: {}", said(target));
    }
    for why in &results.skipped {
        let _ = writeln!(text, "  SKIPPED: {why}");
    }
    if let Some(why) = &results.failed {
        let _ = writeln!(text, "  FAILED: {why}");
    }
    text
}

/// A target and what came of it.
pub(crate) fn said(target: &Target) -> String {
    let Target { name, wanted, got, .. } = target;
    let aim = match target.aim {
        Aim::AtMost => "at most",
        Aim::AtLeast => "at least",
    };
    let held = match target.held {
        Held::Median => "",
        Held::Worst => " in the worst turn",
    };
    let came = if target.met { "met" } else { "MISSED" };
    format!("{name}: {}{held} where {aim} {wanted} is wanted: {came}", short(*got))
}

/// A number with four digits that say something.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{number:.3}"),
        size if size < 100.0 => format!("{number:.2}"),
        size if size < 1000.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A page that stands alone.
pub(crate) fn page(all: &[Results], machine: &str) -> String {
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>DxPU benchmark</title>\n\
         <style>body{font-family:sans-serif;max-width:60em;margin:2em auto}\
         td,th{padding:.2em .8em;text-align:right}td:first-child{text-align:left}\
         .missed{color:#b00}svg{max-width:100%}</style>\n<h1>DxPU benchmark</h1>\n",
    );
    let _ = writeln!(html, "<p>{}</p>", escape(machine));
    for results in all {
        let _ = writeln!(html, "<h2>{}</h2>\n<p>{}</p>", results.name, escape(results.about));
        html.push_str("<table><tr><th><th>median<th>least<th>most</tr>\n");
        for figure in &results.figures {
            let spread = figure.spread;
            let cells = [spread.median, spread.min, spread.max].map(short).join("<td>");
            let name = escape(&format!("{} {}", figure.name, figure.unit));
            let _ = writeln!(html, "<tr><td>{name}<td>{cells}</tr>");
        }
        html.push_str("</table>\n");
        for target in &results.targets {
            let class = if target.met { "met" } else { "missed" };
            let _ = writeln!(html, "<p class=\"{class}\">{}</p>", escape(&said(target)));
        }
        for why in results.skipped.iter().chain(&results.failed) {
            let _ = writeln!(html, "<p>Not measured: {}</p>", escape(why));
        }
        for plot in &results.plots {
            html.push_str(&draw(plot));
        }
    }
    html.push_str("</html>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_said_loudly() {
        let mut results = Results::new("x", "about x");
        results.aimed("ratio", "", [1.5], Held::Median, Aim::AtMost, 1.35);
        results.aimed("pause", "ms", [2.0, 12.0, 3.0], Held::Worst, Aim::AtMost, 10.0);
        results.skipped.push("no <root>".into());
        let text = table(&results);
        assert!(text.contains("1.500 where at most 1.35 is wanted: MISSED"), "{text}");
        assert!(
            text.contains("12.00 in the worst turn where at most 10 is wanted: MISSED"),
            "{text}"
        );
        assert!(text.contains("SKIPPED: no <root>"));
        let page = page(&[results], "m");
        assert!(page.contains("class=\"missed\"") && page.contains("no &lt;root&gt;"), "{page}");
    }
}
