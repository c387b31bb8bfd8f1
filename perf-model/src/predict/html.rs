//! A prediction as a page.

use perf_core::Nanos;

use super::text::columns;
use super::{Native, Prediction};
use crate::replay::Lost;
use crate::report::{Bars, Page};

/// A prediction, and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Predicted<'a> {
    /// The traces' names.
    pub traces: &'a [String],
    /// What they say themselves.
    pub native: &'a Native,
    /// What is predicted.
    pub prediction: &'a Prediction,
    /// The same with changes.
    pub compared: &'a [(String, Prediction)],
    /// What a person should know of the trace.
    pub remarks: &'a [&'a String],
    /// How many names that lose most are shown.
    pub top: usize,
}

fn row(name: String, lost: &Lost) -> Vec<String> {
    std::iter::once(name).chain(columns(lost)).collect()
}

impl Predicted<'_> {
    /// The page; it opens from a file and needs no network.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut page = Page::new("What a fabric would cost");
        page.code(&self.traces.join(" "));
        self.result_to(&mut page);
        self.lost_to(&mut page);
        self.compared_to(&mut page);
        if let Some(bars) = Bars::of(&self.native.kernels) {
            page.heading("How long kernels are");
            page.plot(&bars.svg("kernel durations by number and by time"));
            page.bars_key();
        }
        for remark in self.remarks {
            page.paragraph(remark);
        }
        page.finish()
    }

    fn result_to(&self, page: &mut Page) {
        let Self { native, prediction, .. } = self;
        let fabric = &prediction.scenario.settings.fabric;
        page.paragraph(&format!(
            "{:.2} % of native performance: {} become {}. A round trip takes {} in the fabric and {} \
             without it; Equation 1 gives {:.2} GB/s, and copies to the device have {:.2} of {:.2}.",
            native.performance(prediction),
            Nanos(native.length_ns),
            Nanos(prediction.length_ns),
            fabric.rtt,
            fabric.native_rtt,
            fabric.read_throughput(fabric.rtt).giga(),
            fabric.htod_rate().giga(),
            fabric.native_htod.giga(),
        ));
        if let (Some((count, mean)), Some(step)) = (native.steps, prediction.step_ns) {
            page.paragraph(&format!(
                "A step, of {count}: {} become {}.",
                Nanos(mean.round() as u64),
                Nanos(step.round() as u64)
            ));
        }
    }

    fn lost_to(&self, page: &mut Page) {
        let Some(hidden) = self.prediction.hidden_percent() else {
            page.paragraph("Nothing is added.");
            return;
        };
        page.heading("Where the time goes");
        page.paragraph(&format!(
            "{} are added, {} of them lost: {hidden:.1} % are hidden, behind busy or other GPUs or a \
             slow CPU.",
            Nanos(self.prediction.added_ns()),
            Nanos(self.prediction.lost_ns()),
        ));
        let causes = self.prediction.causes.iter();
        let rows: Vec<_> =
            causes.map(|(cause, lost)| row(cause.title().to_owned(), lost)).collect();
        page.table(&["cause", "count", "added", "lost"], &rows);
        let names = self.prediction.names.iter().filter(|(_, _, lost)| lost.lost_ns > 0);
        let rows: Vec<_> = names
            .take(self.top)
            .map(|(cause, name, lost)| row(format!("{name} ({})", cause.name()), lost))
            .collect();
        if !rows.is_empty() {
            page.heading("What loses most");
            page.table(&["name", "count", "added", "lost"], &rows);
        }
    }

    fn compared_to(&self, page: &mut Page) {
        if self.compared.is_empty() {
            return;
        }
        page.heading("Compared");
        let row = |change: &str, prediction: &Prediction| {
            vec![
                change.to_owned(),
                Nanos(prediction.length_ns).to_string(),
                format!("{:.2} %", self.native.performance(prediction)),
                Nanos(prediction.lost_ns()).to_string(),
            ]
        };
        let mut rows = vec![row("as above", self.prediction)];
        rows.extend(self.compared.iter().map(|(change, prediction)| row(change, prediction)));
        page.table(&["", "predicted", "performance", "lost"], &rows);
    }
}
