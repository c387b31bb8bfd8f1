//! A report as a page that opens from a file and needs no network.

use std::fmt::Write;

use super::plot::Bars;
use super::{Report, advise, percent};

/// Everything that a page looks like; nothing is fetched.
const STYLE: &str = "
:root{--ink:#1c2330;--soft:#5b6678;--paper:#fff;--line:#dde3ec;--one:#2f6fde;--two:#e08a1e;--bad:#c2382b}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf1;--soft:#9aa6b8;--paper:#161b24;--line:#2c3545;
--one:#6ea1ff;--two:#f0ad55;--bad:#ff8478}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:880px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}
code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}
.soft{color:var(--soft)}.bad{color:var(--bad)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
td{font-variant-numeric:tabular-nums;white-space:nowrap}
td:first-child{white-space:normal;overflow-wrap:anywhere}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}svg text{fill:var(--soft)}
.grid{stroke:var(--line)}.number{fill:var(--one)}.time{fill:var(--two)}
.curve{fill:none;stroke:var(--one);stroke-width:2}.point{fill:var(--one)}
.interval{stroke:var(--one);stroke-width:1.5;opacity:.6}
.level{stroke:var(--bad);stroke-dasharray:4 4}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}
";

/// The text with nothing in it that HTML would read.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            // Control characters have no place in a page.
            c if c.is_control() && c != '\n' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A page that grows from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    html: String,
}

impl Page {
    /// A page with this heading.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\">\
                 <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
            ),
        }
    }

    /// A heading within it.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(text));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p>{}</p>", escape(text));
    }

    /// Something that went wrong.
    pub fn warning(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p class=\"bad\">{}</p>", escape(text));
    }

    /// A command.
    pub fn code(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p><code>{}</code></p>", escape(text));
    }

    /// A table: titles, then rows.
    pub fn table(&mut self, titles: &[&str], rows: &[Vec<String>]) {
        self.html += "<div class=\"scroll\"><table><thead><tr>";
        for title in titles {
            let _ = write!(self.html, "<th scope=\"col\">{}</th>", escape(title));
        }
        self.html += "</tr></thead><tbody>\n";
        for row in rows {
            self.html += "<tr>";
            for cell in row {
                let _ = write!(self.html, "<td>{}</td>", escape(cell));
            }
            self.html += "</tr>\n";
        }
        self.html += "</tbody></table></div>\n";
    }

    /// A plot.
    pub fn plot(&mut self, svg: &str) {
        let _ = writeln!(self.html, "<div>{svg}</div>");
    }

    /// What the two colours of [`Bars`] mean.
    pub fn bars_key(&mut self) {
        self.html += "<p class=\"soft\"><span class=\"key\" style=\"background:var(--one)\"></span>\
                      by number<span class=\"key\" style=\"background:var(--two)\"></span>by time\
                      </p>\n";
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.html += "</body></html>\n";
        self.html
    }
}

impl Report {
    /// The report as a page.
    pub fn to_html(&self) -> String {
        let fabric = &self.settings.fabric;
        let mut page = Page::new("What the fabric cost");
        page.code(&self.command.join(" "));
        page.paragraph(&format!(
            "It {}. A round trip takes {} in the fabric and {} without it: {} are added (profile \
             {}). Added to what ran on GPUs and CPUs: {}.",
            self.ran(),
            fabric.rtt,
            fabric.native_rtt,
            fabric.delta(),
            self.profile,
            self.added(),
        ));
        if let Some(ended) = &self.ended {
            page.warning(&format!("The program {ended}."));
        }
        for lost in &self.lost {
            page.warning(&format!("Counts are lost: {lost}."));
        }
        if self.processes.is_empty() {
            page.warning("No process called CUDA's driver through the shim.");
            return page.finish();
        }
        self.kinds_to(&mut page);
        self.kernels_to(&mut page);
        self.advice_to(&mut page);
        self.processes_to(&mut page);
        page.finish()
    }

    fn kinds_to(&self, page: &mut Page) {
        page.heading("Calls and the time added to them");
        let titles = ["kind", "calls", "operations", "bytes", "added", "of the run"];
        page.table(&titles, &self.kind_rows());
        if let Some(proxies) = self.proxies_say() {
            page.paragraph(&format!("Here {proxies}."));
        }
        if let Some(putting) = self.putting_says() {
            page.paragraph(&format!("{putting}."));
        }
    }

    fn kernels_to(&self, page: &mut Page) {
        let Some(says) = self.kernels_say() else {
            return;
        };
        page.heading("How long kernels are");
        page.paragraph(&format!("{says}."));
        let Some(bars) = Bars::of(&self.kernels()) else {
            return;
        };
        page.plot(&bars.svg("kernel durations by number and by time"));
        page.bars_key();
    }

    fn advice_to(&self, page: &mut Page) {
        let advice = advise(self);
        if advice.is_empty() {
            return;
        }
        page.heading("What would help");
        let rows: Vec<Vec<String>> = advice
            .into_iter()
            .map(|advice| {
                let share = percent(advice.saves, self.counted());
                vec![
                    format!("{} ({}.)", advice.what, advice.because),
                    format!("{} ({share:.1} %)", advice.saves),
                ]
            })
            .collect();
        page.table(&["what, and why", "saves at most"], &rows);
    }

    fn processes_to(&self, page: &mut Page) {
        page.heading("Processes");
        let rows: Vec<Vec<String>> = self
            .processes
            .iter()
            .map(|process| {
                vec![
                    format!("{} ({})", process.program, process.pid),
                    process.device.clone(),
                    process.calls.to_string(),
                    process.delays.gpu.to_string(),
                    process.delays.cpu.to_string(),
                    process.delays.lost.to_string(),
                ]
            })
            .collect();
        let titles =
            ["process", "GPU", "driver calls", "delays on the GPU", "of the CPU", "left out"];
        page.table(&titles, &rows);
        for note in self.processes.iter().flat_map(|process| &process.notes) {
            page.warning(note);
        }
    }
}
