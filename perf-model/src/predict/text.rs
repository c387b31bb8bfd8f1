//! A prediction as text.

use std::io::{self, Write};

use perf_core::Nanos;

use super::{CLASSES, Native, Prediction};
use crate::replay::Lost;
use crate::table::Table;

/// The longest part of a name that is shown: templates are kilobytes long.
const NAME: usize = 60;

/// A name, cut in the middle where it is long: its end tells one template's instance from another.
fn shown(name: &str) -> String {
    let length = name.chars().count();
    // A name is from outside: it must not move the cursor.
    let clean = |part: &str| part.replace(char::is_control, "?");
    if length <= NAME {
        return clean(name);
    }
    let half = (NAME - 1) / 2;
    let head: String = name.chars().take(NAME - 1 - half).collect();
    let tail: String = name.chars().skip(length - half).collect();
    clean(&format!("{head}…{tail}"))
}

fn nanos(time: f64) -> Nanos {
    Nanos(time.round() as u64)
}

impl Native {
    /// Says what the trace has in it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let [calls, operations, devices] = self.counts;
        writeln!(out, "{operations} operations on {devices} devices, {calls} calls")?;
        let Some(mean) = self.kernels.mean() else { return Ok(()) };
        writeln!(out, "{} kernels, {} on average", self.kernels.count(), nanos(mean))?;
        let mut table = Table::new(["", "by number", "by time"]);
        for (class, from) in CLASSES.into_iter().enumerate() {
            if self.classes[class].0 == 0 {
                continue;
            }
            let (low, high) = (self.share_below(class), self.share_below(class + 1));
            let range = match CLASSES.get(class + 1) {
                Some(to) => format!("{} to {}", Nanos(from), Nanos(*to)),
                None => format!("{} and more", Nanos(from)),
            };
            let percent = |share: f64| format!("{:.1} %", 100.0 * share);
            table.row([range, percent(high.0 - low.0), percent(high.1 - low.1)]);
        }
        table.write(out, 2)
    }
}

/// How often, what was added, what was lost.
pub(super) fn columns(lost: &Lost) -> [String; 3] {
    [lost.count.to_string(), Nanos(lost.added_ns).to_string(), Nanos(lost.lost_ns).to_string()]
}

impl Prediction {
    /// Says what it says, with so many names.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_text(&self, native: &Native, top: usize, out: &mut dyn Write) -> io::Result<()> {
        let fabric = &self.scenario.settings.fabric;
        writeln!(
            out,
            "\nround trip {} ({} native), Equation 1 {:.2} GB/s, copies to the device {:.2} GB/s of \
             {:.2}",
            fabric.rtt,
            fabric.native_rtt,
            fabric.read_throughput(fabric.rtt).giga(),
            fabric.htod_rate().giga(),
            fabric.native_htod.giga(),
        )?;
        let mut table = Table::new(["", "native", "predicted", "performance"]);
        if let (Some((count, mean)), Some(step)) = (native.steps, self.step_ns) {
            table.row([
                format!("a step, of {count}"),
                nanos(mean).to_string(),
                nanos(step).to_string(),
                format!("{:.2} %", native.performance(self)),
            ]);
        }
        let whole = if self.length_ns == 0 {
            100.0
        } else {
            100.0 * native.length_ns as f64 / self.length_ns as f64
        };
        table.row([
            "the whole trace".to_owned(),
            Nanos(native.length_ns).to_string(),
            Nanos(self.length_ns).to_string(),
            format!("{whole:.2} %"),
        ]);
        table.write(out, 2)?;
        self.write_lost(top, out)
    }

    fn write_lost(&self, top: usize, out: &mut dyn Write) -> io::Result<()> {
        let Some(hidden) = self.hidden_percent() else {
            return writeln!(out, "\nnothing is added");
        };
        writeln!(
            out,
            "\n{} added, {} lost: {hidden:.1} % hidden, behind busy or other GPUs or a slow CPU",
            Nanos(self.added_ns()),
            Nanos(self.lost_ns()),
        )?;
        let mut table = Table::new(["cause", "count", "added", "lost"]);
        for (cause, lost) in &self.causes {
            let [count, added, lost] = columns(lost);
            table.row([cause.title().to_owned(), count, added, lost]);
        }
        table.write(out, 2)?;
        let names: Vec<_> = self.names.iter().filter(|(_, _, it)| it.lost_ns > 0).collect();
        if names.is_empty() || top == 0 {
            return Ok(());
        }
        writeln!(out, "\nwhat loses most")?;
        let mut table = Table::new(["name", "cause", "count", "added", "lost"]);
        for (cause, name, lost) in names.into_iter().take(top) {
            let [count, added, lost] = columns(lost);
            table.row([shown(name), cause.name().to_owned(), count, added, lost]);
        }
        table.write(out, 2)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn long_names_are_cut_in_the_middle() {
        assert_eq!(shown("short\u{1b}[2J"), "short?[2J");
        let long = format!("{}{}", "ä".repeat(5000), "end");
        let cut = shown(&long);
        assert_eq!(cut.chars().count(), NAME);
        assert!(cut.starts_with("ää") && cut.ends_with("end") && cut.contains('…'), "{cut}");
    }
}
