//! Driver of the accelerator for measurements.

pub mod regs;

use crate::host::HostFunction;
use crate::operations::OperationError;
use crate::port::TlpPort;
use nvme_driver::{DmaBuffer, PciFunction};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A job that makes no progress for so long has failed.
const STALL: Duration = Duration::from_secs(10);
/// Between two looks at a job whose interrupt does not come.
const LOOK: Duration = Duration::from_millis(500);
/// Host memory that a test uses at most; longer jobs go over it again and again.
const WINDOW: u64 = 1 << 20;
/// Seed of the pattern that device memory is filled with.
const SEED: u64 = 0xd0ac;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Memory reads of the device.
    HostToDevice,
    /// Memory writes of the device.
    DeviceToHost,
}

/// A bandwidth test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthTest {
    /// Which way.
    pub direction: Direction,
    /// Bytes to move, 1 to 2^40.
    pub bytes: u64,
    /// Tags to use; `None` is all that the device has.
    pub tags: Option<u16>,
    /// Bytes of a TLP at most: what a read request asks for, or a write brings. `None` is what the
    /// device is configured to ask for, or Max_Payload_Size.
    pub request: Option<u16>,
}

impl BandwidthTest {
    fn is_read(&self) -> bool {
        self.direction == Direction::HostToDevice
    }
}

/// A bandwidth test whose device has its data and host memory.
#[derive(Debug)]
#[must_use = "its memory is kept until the test is ended"]
pub struct Prepared {
    test: BandwidthTest,
    buffer: DmaBuffer,
    window: u64,
    /// What is moved, again and again.
    data: Vec<u8>,
}

/// What a bandwidth test gave, by the device's own clock and counters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BandwidthReport {
    /// Which way.
    pub direction: Direction,
    /// Bytes moved; every one was checked by CRC, and the last of each place by value.
    pub bytes: u64,
    /// How long it took.
    pub elapsed_ns: u64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// TLPs with which data was asked for or sent.
    pub requests: u64,
    /// Tags in use.
    pub tags: u16,
    /// Bytes of a read request, or of a write's payload.
    pub request_bytes: u16,
    /// Most read requests outstanding at one time; 0 for writes.
    pub peak_outstanding: u32,
    /// Mean round trip of a read request; 0 for writes.
    pub rtt_mean_ns: u64,
    /// The shortest.
    pub rtt_min_ns: u32,
    /// The longest.
    pub rtt_max_ns: u32,
    /// CRC-32 of the bytes moved.
    pub crc: u32,
}

/// An accelerator that was brought up.
#[derive(Debug)]
pub struct Accelerator {
    memory_size: u64,
    tags: u16,
    read_request: u32,
}

impl Accelerator {
    /// Resets the device and sets up its interrupt.
    ///
    /// # Errors
    ///
    /// When it is another device, or of another version.
    pub fn attach<P: TlpPort>(f: &mut HostFunction<'_, P>) -> Result<Self, OperationError> {
        let bdf = f.bdf();
        let refuse = |reason| OperationError::Unusable { bdf, reason };
        let id = f.bar_read32(regs::REGISTER_BAR, regs::ID)?;
        if id != regs::ID_VALUE {
            return Err(refuse(format!("its ID register is {id:#010x}")));
        }
        let version = f.bar_read32(regs::REGISTER_BAR, regs::VERSION)?;
        if version >> 16 != regs::VERSION_MAJOR {
            return Err(refuse(format!(
                "it has version {}.{}, this driver knows {}",
                version >> 16,
                version & 0xffff,
                regs::VERSION_MAJOR
            )));
        }
        f.bar_write32(regs::REGISTER_BAR, regs::CONTROL, regs::CONTROL_RESET)?;
        f.enable_interrupts(1)?;
        let capabilities = f.bar_read32(regs::REGISTER_BAR, regs::CAPABILITIES)?;
        let memory_size = f.bar_read64(regs::REGISTER_BAR, regs::MEMORY_SIZE)?;
        if memory_size == 0 {
            return Err(refuse("it has no memory".into()));
        }
        let read_request = f.bar_read32(regs::REGISTER_BAR, regs::READ_REQUEST)?;
        Ok(Self { memory_size, tags: (capabilities >> 16) as u16, read_request })
    }

    /// Ends whatever runs.
    ///
    /// # Errors
    ///
    /// When the device cannot be reached.
    pub fn shutdown<P: TlpPort>(self, f: &mut HostFunction<'_, P>) -> Result<(), OperationError> {
        f.bar_write32(regs::REGISTER_BAR, regs::CONTROL, regs::CONTROL_RESET)?;
        // A read behind the write: when it is answered, the write was done.
        f.bar_read32(regs::REGISTER_BAR, regs::ID)?;
        Ok(())
    }

    /// Bytes of device memory.
    pub const fn memory_size(&self) -> u64 {
        self.memory_size
    }

    /// Writes values to the scratch register and reads each back.
    ///
    /// # Errors
    ///
    /// When one comes back otherwise.
    pub fn check_scratch<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
    ) -> Result<(), OperationError> {
        for value in [0, u32::MAX, 0x5555_aaaa, 0x0123_4567] {
            f.bar_write32(regs::REGISTER_BAR, regs::SCRATCH, value)?;
            let found = f.bar_read32(regs::REGISTER_BAR, regs::SCRATCH)?;
            compare("scratch register", &found.to_le_bytes(), value.to_le_bytes())?;
        }
        Ok(())
    }

    /// Runs a bandwidth test.
    ///
    /// # Errors
    ///
    /// A length that cannot be, a job that fails or stalls, or data that is not what was sent.
    pub fn bandwidth<P: TlpPort>(
        &mut self,
        f: &mut HostFunction<'_, P>,
        test: &BandwidthTest,
    ) -> Result<BandwidthReport, OperationError> {
        let prepared = self.prepare(f, test)?;
        let result = self.start(f, &prepared).and_then(|()| self.wait(f, &prepared));
        let result = result.and_then(|report| self.check(f, &prepared, &report).map(|()| report));
        self.end(f, prepared, result.is_ok());
        result
    }

    /// Prepares a bandwidth test, so that [`start`](Self::start) takes no time to speak of: what
    /// several devices do at the same time has to begin at the same time. [`end`](Self::end) is
    /// its end, however it went.
    ///
    /// # Errors
    ///
    /// A length that cannot be, or a device that cannot be reached.
    pub fn prepare<P: TlpPort>(
        &mut self,
        f: &mut HostFunction<'_, P>,
        test: &BandwidthTest,
    ) -> Result<Prepared, OperationError> {
        if test.bytes == 0 || test.bytes > 1 << 40 {
            return Err(OperationError::Invalid(format!(
                "a bandwidth test moves 1 to 2^40 bytes, not {}",
                test.bytes
            )));
        }
        let tags = test.tags.unwrap_or(self.tags);
        f.bar_write32(regs::REGISTER_BAR, regs::TAGS, tags.into())?;
        self.set_request(f, test)?;
        let window = test.bytes.min(WINDOW);
        let buffer = f.dma_alloc(window as usize)?;
        match self.fill(f, test, &buffer, window) {
            Ok(data) => Ok(Prepared { test: *test, buffer, window, data }),
            Err(error) => {
                self.quiesce(f, buffer);
                Err(error)
            }
        }
    }

    fn set_request<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
        test: &BandwidthTest,
    ) -> Result<(), OperationError> {
        let (register, usual) = match test.direction {
            Direction::HostToDevice => (regs::READ_REQUEST, self.read_request),
            Direction::DeviceToHost => (regs::WRITE_PAYLOAD, 4096),
        };
        f.bar_write32(regs::REGISTER_BAR, register, test.request.map_or(usual, u32::from))?;
        let set = f.bar_read32(regs::REGISTER_BAR, register)?;
        if set == 0 && test.request.is_some() {
            let what = "this device does not let the size of its writes be chosen";
            return Err(OperationError::Invalid(what.into()));
        }
        Ok(())
    }

    /// Starts what was prepared.
    ///
    /// # Errors
    ///
    /// A device that cannot be reached.
    pub fn start<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
        prepared: &Prepared,
    ) -> Result<(), OperationError> {
        let Prepared { test, buffer, window, .. } = prepared;
        let operation = if test.is_read() { regs::OP_READ } else { regs::OP_WRITE };
        let (host, window) = (buffer.address(), *window);
        start(f, &Job { operation, host, window, device: 0, length: test.bytes })
    }

    /// Waits until what was started is done; what it gave. Nothing is checked yet: that takes time
    /// in which the host serves no other device.
    ///
    /// # Errors
    ///
    /// A job that fails or stalls.
    pub fn wait<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
        prepared: &Prepared,
    ) -> Result<BandwidthReport, OperationError> {
        wait(f, if prepared.test.is_read() { "DMA read" } else { "DMA write" })?;
        report(f, &prepared.test)
    }

    /// Checks what was moved.
    ///
    /// # Errors
    ///
    /// Data that is not what was sent, or a device that cannot be reached.
    pub fn check<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
        prepared: &Prepared,
        report: &BandwidthReport,
    ) -> Result<(), OperationError> {
        check_crc(report.crc, &prepared.data, prepared.test.bytes)?;
        if prepared.test.is_read() {
            self.check_device(f, prepared)
        } else {
            check_host(f, prepared)
        }
    }

    /// Gives the test's memory back; a job that still runs is aborted.
    pub fn end<P: TlpPort>(&self, f: &mut HostFunction<'_, P>, prepared: Prepared, is_over: bool) {
        if is_over {
            f.dma_free(prepared.buffer);
        } else {
            // A job that failed may have writes on their way: they end behind its abort.
            self.quiesce(f, prepared.buffer);
        }
    }

    /// Puts what is to be moved where it is moved from; what it is.
    fn fill<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
        test: &BandwidthTest,
        buffer: &DmaBuffer,
        window: u64,
    ) -> Result<Vec<u8>, OperationError> {
        if test.is_read() {
            let data = pattern(!SEED, window);
            f.dma_write(buffer, 0, &data)?;
            return Ok(data);
        }
        let length = test.bytes.min(self.memory_size);
        let fill = Job { operation: regs::OP_FILL, host: SEED, window: 0, device: 0, length };
        run(f, "fill", &fill)?;
        Ok(pattern(SEED, length))
    }

    /// The last bytes came to rest in device memory; they go back and are compared one by one.
    fn check_device<P: TlpPort>(
        &self,
        f: &mut HostFunction<'_, P>,
        prepared: &Prepared,
    ) -> Result<(), OperationError> {
        let Prepared { test, buffer, window, data } = prepared;
        let kept = (*window).min(self.memory_size);
        f.dma_write(buffer, 0, &vec![0; *window as usize])?;
        let first = test.bytes - kept;
        let back = Job {
            operation: regs::OP_WRITE,
            host: buffer.address(),
            window: 0,
            device: first % self.memory_size,
            length: kept,
        };
        run(f, "copy back", &back)?;
        let mut found = vec![0; kept as usize];
        f.dma_read(buffer, 0, &mut found)?;
        let expected = (0..kept).map(|i| data[((first + i) % window) as usize]);
        compare("device memory", &found, expected)
    }

    fn quiesce<P: TlpPort>(&self, f: &mut HostFunction<'_, P>, buffer: DmaBuffer) {
        let aborted = f
            .bar_write32(regs::REGISTER_BAR, regs::ABORT, 1)
            .and_then(|()| f.bar_read32(regs::REGISTER_BAR, regs::SLOT_STATUS));
        // Without an answer nobody knows what the device still does: the memory stays its own.
        if aborted.is_ok_and(|status| status as u8 != regs::STATE_RUNNING) {
            f.dma_free(buffer);
        }
    }
}

/// The bytes that came to rest in host memory are compared one by one.
fn check_host<P: TlpPort>(
    f: &mut HostFunction<'_, P>,
    prepared: &Prepared,
) -> Result<(), OperationError> {
    let Prepared { test, buffer, window, data } = prepared;
    let mut found = vec![0; *window as usize];
    f.dma_read(buffer, 0, &mut found)?;
    // The byte that stays at a place is the last one that fell on it.
    let expected = (0..*window).map(|place| {
        let last = place + (test.bytes - 1 - place) / window * window;
        data[(last % data.len() as u64) as usize]
    });
    compare("host memory", &found, expected)
}

/// What the device says of the job that is over.
fn report<P: TlpPort>(
    f: &mut HostFunction<'_, P>,
    test: &BandwidthTest,
) -> Result<BandwidthReport, OperationError> {
    let bar = regs::REGISTER_BAR;
    let (elapsed_ns, bytes) =
        (f.bar_read64(bar, regs::SLOT_ELAPSED)?, f.bar_read64(bar, regs::SLOT_TRANSFERRED)?);
    let requests = f.bar_read64(bar, regs::SLOT_REQUESTS)?;
    let payload = f.bar_read32(bar, regs::PAYLOAD)?;
    Ok(BandwidthReport {
        direction: test.direction,
        bytes,
        elapsed_ns,
        bytes_per_second: bytes as f64 * 1e9 / elapsed_ns.max(1) as f64,
        requests,
        tags: f.bar_read32(bar, regs::TAGS)? as u16,
        request_bytes: if test.is_read() { (payload >> 16) as u16 } else { payload as u16 },
        peak_outstanding: f.bar_read32(bar, regs::SLOT_PEAK)?,
        rtt_mean_ns: f.bar_read64(bar, regs::SLOT_RTT_SUM)? / requests.max(1),
        rtt_min_ns: f.bar_read32(bar, regs::SLOT_RTT_MIN)?,
        rtt_max_ns: f.bar_read32(bar, regs::SLOT_RTT_MAX)?,
        crc: f.bar_read32(bar, regs::SLOT_CRC)?,
    })
}

/// Runs one job to its end.
fn run<P: TlpPort>(
    f: &mut HostFunction<'_, P>,
    what: &'static str,
    job: &Job,
) -> Result<(), OperationError> {
    start(f, job)?;
    wait(f, what)
}

fn start<P: TlpPort>(f: &mut HostFunction<'_, P>, job: &Job) -> Result<(), OperationError> {
    let bar = regs::REGISTER_BAR;
    f.bar_write64(bar, regs::SLOT_HOST, job.host)?;
    f.bar_write64(bar, regs::SLOT_HOST_WINDOW, job.window)?;
    f.bar_write64(bar, regs::SLOT_DEVICE, job.device)?;
    f.bar_write64(bar, regs::SLOT_LENGTH, job.length)?;
    f.bar_write32(bar, regs::SLOT_COMMAND, job.operation | regs::COMMAND_INTERRUPT)?;
    f.bar_write32(bar, regs::DOORBELL, 1)?;
    Ok(())
}

/// Waits for the end of the job that was started last.
fn wait<P: TlpPort>(f: &mut HostFunction<'_, P>, what: &'static str) -> Result<(), OperationError> {
    let bar = regs::REGISTER_BAR;
    let (mut done, mut since) = (0, Instant::now());
    loop {
        f.wait(Some(0), Instant::now() + LOOK)?;
        let status = f.bar_read32(bar, regs::SLOT_STATUS)?;
        if status == u32::MAX {
            return Err(nvme_driver::FunctionError::Gone.into());
        }
        match status as u8 {
            regs::STATE_DONE => return Ok(()),
            regs::STATE_RUNNING => {}
            _ => {
                let reason = regs::error_name((status >> 8) as u8).into();
                return Err(OperationError::Job { what, reason });
            }
        }
        let now_done = f.bar_read64(bar, regs::SLOT_TRANSFERRED)?;
        if now_done != done {
            (done, since) = (now_done, Instant::now());
        } else if since.elapsed() >= STALL {
            let reason = format!("no progress for {STALL:?} after {done} bytes");
            return Err(OperationError::Job { what, reason });
        }
    }
}

/// The registers of a job.
struct Job {
    operation: u32,
    host: u64,
    window: u64,
    device: u64,
    length: u64,
}

/// The first bytes of a fill's pattern.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|k| regs::pattern_word(seed, k).to_le_bytes());
    words.take(len as usize).collect()
}

/// Compares a job's CRC with that of `unit` repeated up to `total` bytes.
fn check_crc(found: u32, unit: &[u8], total: u64) -> Result<(), OperationError> {
    let expected = repeated_crc(unit, total);
    if found == expected {
        return Ok(());
    }
    let reason =
        format!("the CRC of its bytes is {found:#010x} where {expected:#010x} was expected");
    Err(OperationError::Job { what: "bandwidth test", reason })
}

/// CRC-32 of `unit` repeated up to `total` bytes, without going over them all.
fn repeated_crc(unit: &[u8], total: u64) -> u32 {
    let (mut count, rest) = (total / unit.len() as u64, (total % unit.len() as u64) as usize);
    let hash = |bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        hasher
    };
    let (mut all, mut power) = (crc32fast::Hasher::new(), hash(unit));
    // Copies of the unit are put together in powers of two, the lowest first: all are alike.
    while count > 0 {
        if count & 1 != 0 {
            all.combine(&power);
        }
        let double = power.clone();
        power.combine(&double);
        count >>= 1;
    }
    all.combine(&hash(&unit[..rest]));
    all.finalize()
}

fn compare(
    what: &'static str,
    found: &[u8],
    expected: impl IntoIterator<Item = u8>,
) -> Result<(), OperationError> {
    let different = found.iter().zip(expected).enumerate().find(|(_, (a, b))| *a != b);
    match different {
        None => Ok(()),
        Some((offset, (&found, expected))) => {
            Err(OperationError::Mismatch { what, offset: offset as u64, found, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_crc_of_repetitions_is_that_of_all_the_bytes(
            unit in proptest::collection::vec(any::<u8>(), 1..50),
            total in 1_usize..2000,
        ) {
            let all: Vec<u8> = unit.iter().copied().cycle().take(total).collect();
            prop_assert_eq!(repeated_crc(&unit, total as u64), crc32fast::hash(&all));
        }
    }

    #[test]
    fn a_difference_is_told_with_its_place() {
        let error = compare("memory", &[1, 2, 3], [1, 9, 3]).unwrap_err();
        assert_eq!(error.to_string(), "memory: byte 0x1 is 0x02 where 0x09 was expected");
    }
}
