//! The options that say which fabric is meant.

use anyhow::{Context, Result};
use clap::Args;
use perf_core::{BytesPerSecond, Fabric, Nanos, ReadSize, Tags};

use crate::profile::{self, Profile};
use crate::quantity;

/// Round trip of a read through the fabric, as 6.8us; without it, the profile's.
#[derive(Clone, Debug, Args)]
pub(super) struct RttArg {
    /// Round trip of a read through the fabric, as 6.8us.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub(super) rtt: Option<Nanos>,
}

/// A profile, and what differs from it but for the round trip.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Fabric")]
pub(super) struct FabricArgs {
    /// dxpu-68, dxpu-49 (DxPU's two systems), or a file that `dxpu-perf calibrate` wrote.
    #[arg(long, default_value = "dxpu-68", value_name = "NAME|FILE")]
    profile: String,
    /// Round trip of a read with the GPU in the host.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    native_rtt: Option<Nanos>,
    /// Reads that the GPU has under way at once.
    #[arg(long, value_name = "N")]
    tags: Option<u32>,
    /// Bytes that one read asks for: a power of two from 128 to 4096.
    #[arg(long, visible_alias = "read-size", value_name = "BYTES")]
    mrs: Option<u32>,
    /// Bytes that the proxy at the GPU's side asks for before the GPU does.
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    read_ahead: Option<u64>,
    /// What the fabric carries in one direction, as 11.6GB/s or 100Gb/s.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    fabric_rate: Option<BytesPerSecond>,
    /// Round trips that the end of a kernel exposes.
    #[arg(long, value_name = "NUMBER")]
    kernel_round_trips: Option<f64>,
    /// Copies to the GPU are writes of the CPU, at this rate (DxPU, section 5.1).
    #[arg(long, value_name = "RATE", value_parser = quantity::rate,
          num_args = 0..=1, default_missing_value = "9.44GB/s")]
    push: Option<BytesPerSecond>,
}

impl FabricArgs {
    /// Whether it says how many reads are under way, or how large they are.
    pub(super) fn says_reads(&self) -> bool {
        self.tags.is_some() || self.mrs.is_some()
    }

    /// The profile with what differs from it, and with this round trip where there is one.
    ///
    /// # Errors
    /// A profile that cannot be read; numbers that do not go together.
    pub(super) fn profile(&self, rtt: Option<Nanos>) -> Result<Profile> {
        let mut profile = Profile::load(&self.profile)?;
        let base = profile.fabric;
        let fabric = Fabric {
            native_rtt: self.native_rtt.unwrap_or(base.native_rtt),
            tags: self.tags.map_or(Ok(base.tags), Tags::new).context("--tags")?,
            read_size: self.mrs.map_or(Ok(base.read_size), ReadSize::new).context("--mrs")?,
            read_ahead: self.read_ahead.unwrap_or(base.read_ahead),
            fabric_rate: self.fabric_rate.unwrap_or(base.fabric_rate),
            kernel_round_trips: self
                .kernel_round_trips
                .map_or(Ok(base.kernel_round_trips), profile::round_trips)?,
            push: self.push.or(base.push),
            ..base
        };
        profile.fabric = fabric.with_rtt(rtt.unwrap_or(base.rtt)).context("--rtt")?;
        if profile.fabric.rtt != base.rtt || profile.fabric.native_rtt != base.native_rtt {
            // Where this round trip goes nobody said.
            profile.split = None;
        }
        Ok(profile)
    }
}
