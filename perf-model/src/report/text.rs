//! A report as text.

use std::io::{self, Write};

use perf_core::Place;

use super::{Report, advise, percent};
use crate::quantity::show_bytes;
use crate::table::Table;

impl Report {
    /// Writes the report as text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let fabric = &self.settings.fabric;
        writeln!(out, "dxpu-perf: {}", self.command.join(" "))?;
        writeln!(
            out,
            "  {} in the fabric, {} native, {} added to a round trip (profile {})",
            fabric.rtt,
            fabric.native_rtt,
            fabric.delta(),
            self.profile
        )?;
        if let Some(ended) = &self.ended {
            writeln!(out, "  the program {ended}")?;
        }
        for lost in &self.lost {
            writeln!(out, "  counts are lost: {lost}")?;
        }
        if self.processes.is_empty() {
            return writeln!(
                out,
                "  ran {}; no process called CUDA's driver through the shim",
                self.wall
            );
        }
        self.write_processes(out)?;
        self.write_kinds(out)?;
        self.write_kernels(out)?;
        self.write_advice(out)
    }

    fn write_processes(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  {}", self.ran())?;
        for process in &self.processes {
            let delays = process.delays;
            let device = if process.device.is_empty() { "a GPU" } else { &process.device };
            writeln!(
                out,
                "  process {} ({}) on {device}: driver calls {}, delays on the GPU {}, of the CPU {}",
                process.pid, process.program, process.calls, delays.gpu, delays.cpu,
            )?;
            if delays.lost > 0 {
                writeln!(out, "    delays that had no place and were left out: {}", delays.lost)?;
            }
            if process.pushed.bytes > 0 {
                writeln!(out, "    {} pushed by the CPU", show_bytes(process.pushed.bytes))?;
            }
            for note in &process.notes {
                writeln!(out, "    {note}")?;
            }
        }
        Ok(())
    }

    fn write_kinds(&self, out: &mut dyn Write) -> io::Result<()> {
        let added = self.added();
        writeln!(out)?;
        let mut table = Table::new(["", "CALLS", "OPERATIONS", "BYTES", "ADDED", "OF THE RUN"]);
        for row in self.kind_rows() {
            table.row(row);
        }
        table.row([
            "together".to_owned(),
            String::new(),
            String::new(),
            String::new(),
            added.to_string(),
            format!("{:.1} %", percent(added, self.counted())),
        ]);
        table.write(out, 2)?;
        if self.settings.place == Place::Gpu {
            writeln!(out, "  (on several streams or GPUs added times may pass at the same time)")?;
        }
        if let Some(proxies) = self.proxies_say() {
            writeln!(out, "  {proxies}")?;
        }
        if let Some(putting) = self.putting_says() {
            writeln!(out, "\n  {putting}")?;
        }
        Ok(())
    }

    fn write_kernels(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.kernels_say() {
            Some(kernels) => writeln!(out, "\n  kernels: {kernels}"),
            None => Ok(()),
        }
    }

    fn write_advice(&self, out: &mut dyn Write) -> io::Result<()> {
        let advice = advise(self);
        if advice.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  what would help")?;
        for advice in advice {
            let share = percent(advice.saves, self.counted());
            writeln!(out, "  - up to {} ({share:.1} %): {}", advice.saves, advice.what)?;
            writeln!(out, "    {}.", advice.because)?;
        }
        Ok(())
    }
}
