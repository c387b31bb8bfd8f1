//! What each operation costs more: DxPU's model, in whole nanoseconds.

use core::fmt;

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// In microseconds.
    pub fn micros(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The sum, or the longest time that there is.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or no time.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Half of it, rounded down.
    #[must_use]
    pub const fn half(self) -> Self {
        Self(self.0 / 2)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos < 1_000 => write!(out, "{nanos} ns"),
            nanos if nanos < 1_000_000 => write!(out, "{:.2} us", nanos as f64 / 1e3),
            nanos if nanos < 1_000_000_000 => write!(out, "{:.2} ms", nanos as f64 / 1e6),
            nanos => write!(out, "{:.2} s", nanos as f64 / 1e9),
        }
    }
}

/// What is wrong with a number of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricError {
    /// A rate of nothing moves nothing.
    Rate,
    /// A requester has 1 to 16,384 tags (PCIe 6.0, section 2.2.6.2: 14 bits).
    Tags(u32),
    /// A read asks for 128 to 4,096 bytes, a power of two (PCIe 6.0, Device Control).
    ReadSize(u32),
    /// A round trip of more than [`Fabric::LONGEST_RTT`].
    TooLong(Nanos),
    /// The fabric's round trip is shorter than the GPU's own.
    ShorterThanNative {
        /// The round trip through the fabric.
        rtt: Nanos,
        /// The round trip of a GPU in the host itself.
        native: Nanos,
    },
}

impl fmt::Display for FabricError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate => write!(out, "a rate must be more than 0 bytes a second"),
            Self::Tags(tags) => write!(out, "{tags} tags: a requester has 1 to 16384"),
            Self::ReadSize(size) => {
                write!(out, "read size {size}: a power of two from 128 to 4096 bytes is wanted")
            }
            Self::TooLong(rtt) => {
                write!(out, "the round trip {rtt} is longer than {}", Fabric::LONGEST_RTT)
            }
            Self::ShorterThanNative { rtt, native } => write!(
                out,
                "the round trip {rtt} is shorter than the native one, {native}: \
                 a fabric adds to it"
            ),
        }
    }
}

impl core::error::Error for FabricError {}

/// A rate, more than 0 bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BytesPerSecond(u64);

impl BytesPerSecond {
    /// The rate, unless it is 0.
    pub const fn new(rate: u64) -> Result<Self, FabricError> {
        if rate == 0 { Err(FabricError::Rate) } else { Ok(Self(rate)) }
    }

    /// In bytes a second.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// In 10^9 bytes a second.
    pub fn giga(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long `bytes` take at this rate, rounded to the nearest nanosecond.
    pub const fn time(self, bytes: u64) -> Nanos {
        let rate = self.0 as u128;
        let nanos = (bytes as u128 * 1_000_000_000 + rate / 2) / rate;
        Nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }
}

/// How many reads a GPU has under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags(u32);

impl Tags {
    /// The number of tags, 1 to 16,384.
    pub const fn new(tags: u32) -> Result<Self, FabricError> {
        if tags == 0 || tags > 16_384 { Err(FabricError::Tags(tags)) } else { Ok(Self(tags)) }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// How many bytes one read asks for (Max_Read_Request_Size, or less where the GPU asks for less).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSize(u32);

impl ReadSize {
    /// The size in bytes: a power of two from 128 to 4,096.
    pub const fn new(bytes: u32) -> Result<Self, FabricError> {
        if bytes < 128 || bytes > 4096 || !bytes.is_power_of_two() {
            Err(FabricError::ReadSize(bytes))
        } else {
            Ok(Self(bytes))
        }
    }

    /// In bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A number in thousandths: 1500 is one and a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thousandths(pub u32);

impl Thousandths {
    /// One.
    pub const ONE: Self = Self(1000);

    /// That many times `time`, rounded down.
    pub const fn of(self, time: Nanos) -> Nanos {
        let nanos = time.0 as u128 * self.0 as u128 / 1000;
        Nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }
}

/// A fabric between host and GPU, and the GPU as it is without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// Round trip of a read over PCIe, GPU in the host (DxPU: RTT_ori).
    pub native_rtt: Nanos,
    /// Round trip of a read through the fabric (DxPU: RTT_dxpu).
    pub rtt: Nanos,
    /// Reads that the GPU has under way at once.
    pub tags: Tags,
    /// Bytes that one of them asks for.
    pub read_size: ReadSize,
    /// Bytes that the proxy at the GPU's side has asked for before the GPU does (0: none).
    pub read_ahead: u64,
    /// Host to device, GPU in the host.
    pub native_htod: BytesPerSecond,
    /// Device to host, GPU in the host.
    pub native_dtoh: BytesPerSecond,
    /// What the fabric carries in one direction; all GPUs behind one proxy share it.
    pub fabric_rate: BytesPerSecond,
    /// Round trips that the end of a kernel exposes.
    pub kernel_round_trips: Thousandths,
    /// Copies to the device are done as writes of the CPU, at this rate (DxPU, section 5.1).
    pub push: Option<BytesPerSecond>,
}

const fn rate(bytes_per_second: u64) -> BytesPerSecond {
    match BytesPerSecond::new(bytes_per_second) {
        Ok(rate) => rate,
        Err(_) => panic!("a constant rate is more than 0"),
    }
}

impl Fabric {
    /// DxPU's first system: 6.8 us, a V100 with 140 tags and reads of 128 bytes (Table 6,
    /// section 3.4; 11.2 GB/s native to the device, 12.5 and 11.6 GB/s from it).
    pub const DXPU_68: Self = Self {
        native_rtt: Nanos(1_200),
        rtt: Nanos(6_800),
        tags: Tags(140),
        read_size: ReadSize(128),
        read_ahead: 0,
        native_htod: rate(11_200_000_000),
        native_dtoh: rate(12_500_000_000),
        fabric_rate: rate(11_600_000_000),
        kernel_round_trips: Thousandths::ONE,
        push: None,
    };

    /// DxPU's second system: as the first, with 4.9 us.
    pub const DXPU_49: Self = Self { rtt: Nanos(4_900), ..Self::DXPU_68 };

    /// No fabric: DxPU's GPU in its host.
    pub const NATIVE: Self = Self { rtt: Self::DXPU_68.native_rtt, ..Self::DXPU_68 };

    /// The longest round trip that is a fabric's: requests of devices time out before
    /// (PCIe 6.0, section 2.8: 50 ms by default).
    pub const LONGEST_RTT: Nanos = Nanos(1_000_000_000);

    /// The rate of copies as writes of the CPU that DxPU measured (section 5.1).
    pub const DXPU_PUSH: BytesPerSecond = rate(9_440_000_000);

    /// This fabric with another round trip.
    ///
    /// # Errors
    /// [`FabricError::ShorterThanNative`] and [`FabricError::TooLong`].
    pub fn with_rtt(self, rtt: Nanos) -> Result<Self, FabricError> {
        if rtt < self.native_rtt {
            return Err(FabricError::ShorterThanNative { rtt, native: self.native_rtt });
        }
        if rtt > Self::LONGEST_RTT {
            return Err(FabricError::TooLong(rtt));
        }
        Ok(Self { rtt, ..self })
    }

    /// What the fabric adds to a round trip (DxPU: RTT_delta).
    pub const fn delta(&self) -> Nanos {
        self.rtt.saturating_sub(self.native_rtt)
    }

    /// Whether it adds nothing: the GPU is in the host.
    pub const fn is_native(&self) -> bool {
        self.delta().0 == 0
    }

    /// DxPU's Equation 1: what reads alone would move at `rtt`, tags × read size (and what was
    /// read ahead) in each round trip. At a round trip of 0 nothing bounds it.
    pub fn read_throughput(&self, rtt: Nanos) -> BytesPerSecond {
        let in_flight = u64::from(self.tags.0) * u64::from(self.read_size.0);
        let in_flight = u128::from(in_flight) + u128::from(self.read_ahead);
        let bound = match u128::from(rtt.0) {
            0 => u128::from(u64::MAX),
            nanos => in_flight * 1_000_000_000 / nanos,
        };
        BytesPerSecond(u64::try_from(bound).unwrap_or(u64::MAX).max(1))
    }

    /// Host to device through the fabric, for large copies.
    pub fn htod_rate(&self) -> BytesPerSecond {
        if self.is_native() {
            return self.native_htod;
        }
        let fabric = match self.push {
            Some(push) => push,
            None => self.read_throughput(self.rtt),
        };
        fabric.min(self.native_htod).min(self.fabric_rate)
    }

    /// Device to host through the fabric, for large copies: posted writes, which wait for nothing.
    pub fn dtoh_rate(&self) -> BytesPerSecond {
        if self.is_native() { self.native_dtoh } else { self.fabric_rate.min(self.native_dtoh) }
    }

    /// This fabric with the rates that a GPU was seen to have without it, and as many tags at
    /// least as those need: what moves at a rate has rate × round trip under way (Little's law).
    #[must_use]
    pub fn with_native_rates(self, htod: BytesPerSecond, dtoh: BytesPerSecond) -> Self {
        let in_flight = u128::from(htod.0) * u128::from(self.native_rtt.0) / 1_000_000_000;
        let wanted = in_flight.div_ceil(u128::from(self.read_size.0));
        let tags = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(self.tags.0, 16_384);
        Self { native_htod: htod, native_dtoh: dtoh, tags: Tags(tags), ..self }
    }

    /// What a copy of `bytes` to the device takes longer: a round trip's share, or half of it as
    /// writes of the CPU, and what the lower rate costs.
    pub fn htod_extra(&self, bytes: u64) -> Nanos {
        if self.is_native() || bytes == 0 {
            return Nanos::ZERO;
        }
        let latency = if self.push.is_some() { self.delta().half() } else { self.delta() };
        let slower = self.htod_rate().time(bytes).saturating_sub(self.native_htod.time(bytes));
        latency.saturating_add(slower)
    }

    /// What a copy of `bytes` from the device takes longer.
    pub fn dtoh_extra(&self, bytes: u64) -> Nanos {
        if self.is_native() || bytes == 0 {
            return Nanos::ZERO;
        }
        let slower = self.dtoh_rate().time(bytes).saturating_sub(self.native_dtoh.time(bytes));
        self.delta().half().saturating_add(slower)
    }

    /// What a copy of `bytes` to a GPU behind another proxy takes longer: writes of the first GPU.
    /// GPUs behind one proxy reach each other without the fabric; then it is nothing, which the
    /// caller knows.
    pub fn peer_extra(&self, bytes: u64) -> Nanos {
        self.dtoh_extra(bytes)
    }

    /// What the end of a kernel takes longer.
    pub fn kernel_extra(&self) -> Nanos {
        self.kernel_round_trips.of(self.delta())
    }

    /// What a memset takes longer.
    pub fn memset_extra(&self) -> Nanos {
        self.delta()
    }

    /// How much later the CPU sees what the GPU wrote when it was ready.
    pub fn sync_extra(&self) -> Nanos {
        self.delta().half()
    }

    /// What a host callback takes longer, to be heard of and to let the stream go on: each half.
    pub fn callback_extra(&self) -> Nanos {
        self.delta()
    }

    /// How much later an idle GPU begins: the doorbell on its way, and the fetch of the work.
    pub fn doorbell_extra(&self) -> Nanos {
        self.delta().half().saturating_add(self.delta())
    }

    /// This fabric when a part of the proxy's rate is in use: the added time grows as a queue's
    /// does with packets of one size (M/D/1): by 1 + u / (2 (1 − u)). `utilisation` is taken to
    /// lie from 0 to 0.99.
    #[must_use]
    pub fn under_load(self, utilisation: f64) -> Self {
        let u = if utilisation.is_finite() { utilisation.clamp(0.0, 0.99) } else { 0.0 };
        let delta = (self.delta().0 as f64 * (1.0 + u / (2.0 * (1.0 - u)))).round() as u64;
        Self { rtt: self.native_rtt.saturating_add(Nanos(delta)), ..self }
    }
}
