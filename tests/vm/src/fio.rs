//! Work with a drive that finds a block which is not what was written.

use crate::guest::Output;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// After so many writes, a job that lasts a time reads them back.
const BACKLOG: u64 = 64;

/// A job of fio's, at random places, in blocks with a checksum each.
#[derive(Clone, Debug)]
pub struct Verify {
    command: String,
    /// Blocks that it reads at least, whatever the time it has; nothing where that is not known.
    reads: Option<u64>,
}

impl Verify {
    /// Reads and writes, mixed, as many as there are blocks in so many MiB; then reads and checks
    /// all that was written. `depth` requests are out at a time.
    pub fn mixed(file: &str, mib: u64, depth: u32) -> Self {
        let command = format!("{} --rw=randrw", job(file, mib, depth));
        Self { command, reads: Some((mib << 20) / BLOCK) }
    }

    /// Reads and writes, mixed, for a time, and after every 64 writes reads and checks what they
    /// wrote. A job that only checked in the end would have no time left for it.
    pub fn lasting(file: &str, mib: u64, depth: u32, seconds: u64) -> Self {
        let job = job(file, mib, depth);
        let command = format!(
            "{job} --rw=randrw --verify_backlog={BACKLOG} --loops=100000 --time_based \
             --runtime={seconds}"
        );
        Self { command, reads: None }
    }

    /// The command for a guest's shell.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// How it went: the blocks that were written and those that were read.
    ///
    /// # Errors
    ///
    /// When a block was not what was written, there was any other error, or too little was checked.
    pub fn check(&self, output: &Output) -> Result<(u64, u64)> {
        let said = &output.text;
        ensure!(output.status == 0, "fio ended with {}:\n{said}", output.status);
        // Warnings come before.
        let start = said.find('{').with_context(|| format!("no JSON: {said}"))?;
        let report = serde_json::Deserializer::from_str(&said[start..]).into_iter::<Value>().next();
        let report = report.context("fio says nothing")??;
        let number = |path: &str| {
            let number = report.pointer(path).and_then(Value::as_u64);
            number.with_context(|| format!("no {path}: {said}"))
        };
        ensure!(number("/jobs/0/error")? == 0, "{said}");
        let writes = number("/jobs/0/write/total_ios")?;
        let reads = number("/jobs/0/read/total_ios")?;
        // Without a time, all that was asked for; with one about as many as were written, and nearly
        // all of these to be checked.
        let least = self.reads.unwrap_or_else(|| (writes + writes / 4).max(BACKLOG));
        ensure!(
            writes > 0 && reads >= least,
            "{reads} blocks were read of the {least} that are to be, {writes} written: {said}"
        );
        Ok((writes, reads))
    }
}

fn job(file: &str, mib: u64, depth: u32) -> String {
    format!(
        "fio --name=verify --filename={file} --size={mib}M --bs={BLOCK} --iodepth={depth} \
         --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --output-format=json"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(status: i32, error: u32, reads: u64, writes: u64) -> Output {
        let text = format!(
            "fio: a warning\n{{\"jobs\": [{{\"error\": {error}, \"read\": {{\"total_ios\": {reads}}}, \
             \"write\": {{\"total_ios\": {writes}}}}}]}}\nand more\n"
        );
        Output { status, text }
    }

    #[test]
    fn what_checked_too_little_is_no_success() {
        let mixed = Verify::mixed("/dev/drive", 1, 8);
        assert_eq!(mixed.check(&output(0, 0, 256, 130)).unwrap(), (130, 256));
        // What was written was not read back.
        assert!(mixed.check(&output(0, 0, 126, 130)).is_err());
        assert!(mixed.check(&output(1, 0, 256, 130)).is_err());
        assert!(mixed.check(&output(0, 84, 256, 130)).is_err());
        assert!(mixed.check(&output(0, 0, 256, 0)).is_err());
        let lasting = Verify::lasting("/dev/drive", 1, 8, 10);
        assert!(lasting.check(&output(0, 0, 1960, 1000)).is_ok());
        // Those of the mixture alone.
        assert!(lasting.check(&output(0, 0, 1020, 1000)).is_err());
        assert!(lasting.check(&output(0, 0, 0, 10)).is_err());
        assert!(lasting.check(&Output { status: 0, text: "nothing".to_owned() }).is_err());
    }
}
