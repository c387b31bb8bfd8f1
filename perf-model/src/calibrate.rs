//! What this host and GPU are without a fabric, measured.

use std::time::{Duration, Instant};

use perf_core::{BytesPerSecond, Fabric, FabricError, Nanos, ptx};
use perf_cuda::{CudaError, Gpu, Kernel, Stream};
use thiserror::Error;

/// How often each thing is measured; the median counts.
const REPEATS: usize = 9;

/// Reads in one chase. Each is of another line: nothing is found in a cache.
const HOPS: usize = 8192;

/// Bytes between two of a chase's words: more than any GPU reads at once.
const STRIDE: usize = 256;

/// Launches whose time is taken together.
const LAUNCHES: u32 = 1000;

/// The sizes of copies that are measured, bytes.
pub const SIZES: [usize; 8] =
    [4, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// The lengths of delays that are measured, ns.
pub const DELAYS: [u64; 8] = [0, 1_000, 2_000, 3_700, 5_600, 10_000, 20_000, 100_000];

/// From this length on a delay's own work is within it.
const LONG_ENOUGH: Nanos = Nanos(3_700);

/// A delay that holds a stream up while so many kernels are launched, ns.
const PLUG: u64 = 10_000_000;

/// One that holds it up while a kernel and two events are put into it, ns.
const EVENT_PLUG: u64 = 100_000;

/// How often the time between two events is measured: single ones differ by a step of their clock.
const EVENT_REPEATS: usize = 101;

/// Delays of one length that follow each other.
const DELAYS_TOGETHER: u64 = 200;

/// A copy of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its size.
    pub bytes: usize,
    /// To the GPU, on the GPU's timeline.
    pub to_device: Duration,
    /// From the GPU.
    pub to_host: Duration,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// What the GPU is called.
    pub gpu: String,
    /// Where it is on the PCI bus.
    pub pci_address: String,
    /// A read of the host's memory by the GPU.
    pub read_rtt: Nanos,
    /// Copies by size, growing.
    pub copies: Vec<Copy>,
    /// What the CPU spends on launching a kernel that does nothing.
    pub launch_cpu: Nanos,
    /// What such a kernel takes on the GPU, one after the other, all launched before the first
    /// begins: its time and the gap to the next.
    pub launch_gpu: Nanos,
    /// The time between two events with such a kernel between them, and with nothing.
    pub events: [Nanos; 2],
    /// The shim's delays by what was asked for: what one takes on the GPU's timeline, the gap before
    /// it included. The first, of no length, is the smallest there is.
    pub delays: Vec<(Nanos, Nanos)>,
    /// Bytes that one read of this GPU may ask for (Device Control, Max_Read_Request_Size), where
    /// this user may read it.
    pub read_size: Option<u32>,
}

/// Why there is no calibration.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The driver or the GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Reads took no time.
    #[error("reads of the host's memory by the GPU took no time: this GPU cannot be measured")]
    NoTime,
    /// What was measured cannot be.
    #[error("what was measured cannot be: {0}")]
    Fabric(#[from] FabricError),
}

/// Measures `gpu`; `progress` hears what is being measured.
///
/// # Errors
/// What the driver says.
pub fn measure(gpu: &Gpu, mut progress: impl FnMut(&str)) -> Result<Calibration, CalibrateError> {
    progress("reads of the host's memory by the GPU");
    let read_rtt = read_rtt(gpu)?;
    if read_rtt == Nanos::ZERO {
        return Err(CalibrateError::NoTime);
    }
    let mut copies = Vec::new();
    for bytes in SIZES {
        progress(&format!("copies of {}", crate::quantity::show_bytes(bytes as u64)));
        copies.push(copy(gpu, bytes)?);
    }
    progress("launches");
    let (launch_cpu, launch_gpu) = launches(gpu)?;
    progress("delays");
    let events = events(gpu)?;
    let delays = delays(gpu)?;
    let pci_address = gpu.pci_address()?;
    let read_size = read_size(&pci_address);
    Ok(Calibration {
        gpu: gpu.name()?,
        pci_address,
        read_rtt,
        copies,
        launch_cpu,
        launch_gpu,
        events,
        delays,
        read_size,
    })
}

impl Calibration {
    /// The largest copy's rate to the GPU and from it.
    ///
    /// # Errors
    /// A copy that took no time, or for ever.
    pub fn rates(&self) -> Result<(BytesPerSecond, BytesPerSecond), FabricError> {
        let rate = |time: fn(&Copy) -> Duration| {
            let rates = self.copies.iter().map(|copy| copy.bytes as f64 / time(copy).as_secs_f64());
            let best = rates.filter(|rate| rate.is_finite()).fold(0.0, f64::max);
            BytesPerSecond::new(best as u64)
        };
        Ok((rate(|copy| copy.to_device)?, rate(|copy| copy.to_host)?))
    }

    /// What a delay costs beyond what was asked for. The first ones are left out: what the kernel
    /// does itself hides in a longer delay, and not in those.
    pub fn delay_cost(&self) -> Nanos {
        let long = self.delays.iter().filter(|(asked, _)| *asked >= LONG_ENOUGH);
        let mut costs: Vec<Nanos> = long.map(|(asked, got)| got.saturating_sub(*asked)).collect();
        if costs.is_empty() { Nanos::ZERO } else { median(&mut costs) }
    }

    /// The smallest delay that can be injected: one of no length, which may take longer than a delay
    /// costs, for in a longer one a part of what the kernel does itself hides.
    pub fn smallest_delay(&self) -> Nanos {
        let shortest = self.delays.iter().map(|(_, got)| *got).min();
        self.delay_cost().max(shortest.unwrap_or(Nanos::ZERO))
    }

    /// Bytes that the GPU has asked for and not yet got when it copies at its full rate: tags ×
    /// read size is at least that much (Little's law). The link, not the tags, may be what bounds
    /// it without a fabric.
    pub fn in_flight(&self) -> Result<u64, FabricError> {
        let (to_device, _) = self.rates()?;
        Ok((to_device.giga() * self.read_rtt.0 as f64).ceil() as u64)
    }

    /// `fabric` with this GPU and host in place of its own: its added time, its tags × read size
    /// where this GPU was seen to have no more under way.
    ///
    /// # Errors
    /// What was measured cannot be.
    pub fn fabric(&self, fabric: Fabric) -> Result<Fabric, FabricError> {
        let (native_htod, native_dtoh) = self.rates()?;
        let delta = fabric.delta();
        let read_size = match self.read_size.map(perf_core::ReadSize::new) {
            Some(Ok(size)) => size,
            _ => fabric.read_size,
        };
        let known = u64::from(fabric.tags.get()) * u64::from(fabric.read_size.get());
        let known = known.div_ceil(u64::from(read_size.get()));
        let known = u32::try_from(known).unwrap_or(u32::MAX).min(16_384);
        let own = Fabric {
            native_rtt: self.read_rtt,
            rtt: self.read_rtt.saturating_add(delta),
            read_size,
            tags: perf_core::Tags::new(known)?,
            ..fabric
        };
        Ok(own.with_native_rates(native_htod, native_dtoh))
    }
}

/// The round trip of a read: the time that more hops take longer than fewer, for each of them.
fn read_rtt(gpu: &Gpu) -> Result<Nanos, CudaError> {
    let words = STRIDE / 8;
    let mut host = gpu.pinned_memory(2 * HOPS * STRIDE)?;
    let out = gpu.device_memory(8)?;
    let base = host.address()?;
    for (index, order) in orders().into_iter().enumerate() {
        let next = base + (order * STRIDE) as u64;
        host.words()[index * words] = next;
    }
    let kernel = gpu.kernel(ptx::CHASE)?;
    let stream = gpu.stream()?;
    let hops = |hops: usize| {
        stream.timed(|stream| {
            // SAFETY: the chase's parameters; it reads words of `host`, each of which holds the
            // address of another, and writes one word to `out`; both outlive `timed`, which waits.
            #[expect(unsafe_code, reason = "see above")]
            unsafe {
                kernel.launch(stream, [base, hops as u64, out.address()])
            }
        })
    };
    hops(16)?;
    let mut trips = Vec::new();
    for _ in 0..REPEATS {
        let more = hops(HOPS)?.saturating_sub(hops(HOPS / 2)?);
        trips.push(more.as_nanos() as u64 / (HOPS / 2) as u64);
    }
    Ok(Nanos(median(&mut trips)))
}

/// For each line the one that is read after it: a cycle through all of them, each far from the
/// one before.
fn orders() -> Vec<usize> {
    let lines = 2 * HOPS;
    // Steps of an odd number through a power of two come to every line once.
    let step = 7919;
    (0..lines).map(|line| (line + step) % lines).collect()
}

fn copy(gpu: &Gpu, bytes: usize) -> Result<Copy, CudaError> {
    let mut host = gpu.pinned_memory(bytes.max(8))?;
    let device = gpu.device_memory(bytes.max(8))?;
    let stream = gpu.stream()?;
    let (mut to_device, mut to_host) = (Vec::new(), Vec::new());
    for _ in 0..=REPEATS {
        to_device.push(stream.timed(|stream| device.copy_from(&host, bytes, stream))?);
        to_host.push(stream.timed(|stream| device.copy_to(&mut host, bytes, stream))?);
    }
    Ok(Copy { bytes, to_device: median(&mut to_device[1..]), to_host: median(&mut to_host[1..]) })
}

/// What a launch costs the CPU, and the GPU.
fn launches(gpu: &Gpu) -> Result<(Nanos, Nanos), CudaError> {
    let (kernel, delay) = (gpu.kernel(ptx::EMPTY)?, Delay::new(gpu)?);
    let stream = gpu.stream()?;
    let (mut cpu, mut on_gpu) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        delay.put(&stream, PLUG)?;
        let mut spent = Duration::ZERO;
        let elapsed = stream.timed(|stream| {
            let begun = Instant::now();
            for _ in 0..LAUNCHES {
                launch_empty(&kernel, stream)?;
            }
            spent = begun.elapsed();
            Ok(())
        })?;
        cpu.push((spent / LAUNCHES).as_nanos() as u64);
        on_gpu.push((elapsed / LAUNCHES).as_nanos() as u64);
    }
    Ok((Nanos(median(&mut cpu)), Nanos(median(&mut on_gpu))))
}

/// What lies between two events that a kernel that does nothing is between, and that nothing is.
fn events(gpu: &Gpu) -> Result<[Nanos; 2], CudaError> {
    let (kernel, delay) = (gpu.kernel(ptx::EMPTY)?, Delay::new(gpu)?);
    let stream = gpu.stream()?;
    let between = |kernels: usize| {
        let mut times = Vec::new();
        for _ in 0..EVENT_REPEATS {
            delay.put(&stream, EVENT_PLUG)?;
            let time = stream
                .timed(|stream| (0..kernels).try_for_each(|_| launch_empty(&kernel, stream)))?;
            times.push(time.as_nanos() as u64);
        }
        Ok(Nanos(median(&mut times)))
    };
    Ok([between(1)?, between(0)?])
}

fn launch_empty(kernel: &Kernel<'_>, stream: &Stream<'_>) -> Result<(), CudaError> {
    // SAFETY: the kernel has no parameters and touches nothing.
    #[expect(unsafe_code, reason = "see above")]
    unsafe {
        kernel.launch(stream, [])
    }
}

/// The shim's delay.
struct Delay<'a> {
    kernel: Kernel<'a>,
    clock: u64,
}

impl<'a> Delay<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self, CudaError> {
        Ok(Self { kernel: gpu.kernel(ptx::DELAY)?, clock: u64::from(gpu.clock()?.max(1)) })
    }

    /// Puts one of so many nanoseconds into a stream.
    fn put(&self, stream: &Stream<'_>, nanos: u64) -> Result<(), CudaError> {
        // SAFETY: the delay's parameters; it touches the memory of its own module alone.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            self.kernel.launch(stream, [nanos, self.clock])
        }
    }
}

/// What the shim's delays take, one after the other.
fn delays(gpu: &Gpu) -> Result<Vec<(Nanos, Nanos)>, CudaError> {
    let delay = Delay::new(gpu)?;
    let stream = gpu.stream()?;
    let one = |asked: u64| {
        // All of them are launched before the first begins: the GPU's own pace is looked for.
        delay.put(&stream, PLUG)?;
        let elapsed = stream
            .timed(|stream| (0..DELAYS_TOGETHER).try_for_each(|_| delay.put(stream, asked)))?;
        Ok(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX) / DELAYS_TOGETHER)
    };
    // It learns the clock from its first delays.
    one(10_000)?;
    DELAYS
        .into_iter()
        .map(|asked| {
            let mut got: Vec<u64> = (0..REPEATS).map(|_| one(asked)).collect::<Result<_, _>>()?;
            Ok((Nanos(asked), Nanos(median(&mut got))))
        })
        .collect()
}

/// Max_Read_Request_Size of the device at `address`, from its configuration space (PCIe 6.0,
/// section 7.5.3.4). Only root may read that far.
fn read_size(address: &str) -> Option<u32> {
    let config = std::fs::read(format!("/sys/bus/pci/devices/{address}/config")).ok()?;
    read_size_of(&config)
}

fn read_size_of(config: &[u8]) -> Option<u32> {
    let byte = |at: usize| config.get(at).copied();
    let mut at = usize::from(byte(0x34)? & 0xfc);
    // More capabilities than fit are a loop.
    for _ in 0..48 {
        if at == 0 {
            return None;
        }
        if byte(at)? == 0x10 {
            let control = u16::from_le_bytes([byte(at + 8)?, byte(at + 9)?]);
            return Some(128 << (control >> 12 & 7));
        }
        at = usize::from(byte(at + 1)? & 0xfc);
    }
    None
}

fn median<T: Ord + Clone>(values: &mut [T]) -> T {
    values.sort();
    values[values.len() / 2].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_comes_to_every_line_before_it_comes_back() {
        let orders = orders();
        let (mut at, mut seen) = (0, vec![false; orders.len()]);
        for _ in 0..orders.len() {
            assert!(!seen[at]);
            seen[at] = true;
            at = orders[at];
        }
        assert_eq!(at, 0);
    }

    fn calibration() -> Calibration {
        Calibration {
            gpu: "GPU".to_owned(),
            pci_address: "0000:3b:00.0".to_owned(),
            read_rtt: Nanos(1_000),
            copies: vec![Copy {
                bytes: 64_000_000,
                to_device: Duration::from_millis(4),
                to_host: Duration::from_millis(2),
            }],
            launch_cpu: Nanos(2_000),
            launch_gpu: Nanos(1_500),
            events: [Nanos(4_000), Nanos(1_000)],
            delays: vec![(Nanos(0), Nanos(2_500)), (Nanos(5_600), Nanos(7_400))],
            read_size: Some(512),
        }
    }

    #[test]
    fn a_profile_has_this_gpu_and_the_fabrics_added_time() {
        let fabric = calibration().fabric(Fabric::DXPU_68).unwrap();
        assert_eq!((fabric.native_rtt, fabric.delta()), (Nanos(1_000), Fabric::DXPU_68.delta()));
        assert_eq!(fabric.native_htod.get(), 16_000_000_000);
        assert_eq!(fabric.native_dtoh.get(), 32_000_000_000);
        // 16 GB/s and 1 us: 16,000 bytes; DxPU's V100 was seen to have 17,920 under way.
        assert_eq!((fabric.read_size.get(), fabric.tags.get()), (512, 35));
        assert_eq!(calibration().delay_cost(), Nanos(1_800));
        // No delay is as short as what one costs.
        assert_eq!(calibration().smallest_delay(), Nanos(2_500));
    }

    #[test]
    fn the_read_size_is_where_pcie_has_it() {
        let mut config = vec![0_u8; 256];
        config[0x34] = 0x60;
        (config[0x60], config[0x61]) = (0x01, 0x78);
        (config[0x78], config[0x79]) = (0x10, 0x00);
        config[0x81] = 0x20;
        assert_eq!(read_size_of(&config), Some(512));
        assert_eq!(read_size_of(&config[..64]), None);
        config[0x78] = 0x05;
        (config[0x79], config[0x61]) = (0x60, 0x78);
        assert_eq!(read_size_of(&config), None);
    }
}
