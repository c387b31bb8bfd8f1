//! The options that say what the shim does.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use perf_core::{Nanos, Place, PushCopies, Range, Settings};

use super::fabric::FabricArgs;
use super::kinds::{KindArgs, ProxiesArg};
use crate::launch::{self, Launch, Way};
use crate::profile::Profile;
use crate::quantity;

/// What the shim does, and to which program.
#[derive(Clone, Debug, Args)]
pub(super) struct ShimArgs {
    #[command(flatten)]
    fabric: FabricArgs,
    /// Where delays are spent: on the GPU's timeline in the stream concerned, or by the CPU in the
    /// call, which holds the program up where a fabric would not.
    #[arg(long, value_enum, default_value = "gpu")]
    place: PlaceArg,
    #[command(flatten)]
    kinds: KindArgs,
    /// Which proxies the GPUs are behind: all behind one, so that copies between them cost nothing
    /// more, or each behind one of its own. That they share a proxy's rate is not injected.
    #[arg(long, value_enum, default_value = "one")]
    proxies: ProxiesArg,
    /// What is delayed and counted: all that the program does, or what it does between
    /// cuProfilerStart and cuProfilerStop (torch.cuda.profiler.start() and stop()), so that its
    /// beginning and its warm-up are left out.
    #[arg(long, value_enum, default_value = "all")]
    range: RangeArg,
    /// The duration of one of so many kernels is measured; 0 measures none.
    #[arg(long, value_name = "N", default_value_t = 16)]
    measure_every: u32,
    /// Copies to the GPU of these sizes are done as writes of the CPU, where the driver maps the
    /// GPU's memory for it (DxPU, section 5.1).
    #[arg(long, value_name = "LEAST-MOST", value_parser = sizes,
          num_args = 0..=1, default_missing_value = "1-1MiB")]
    push_copies: Option<PushCopies>,
    /// The shim, where it does not lie beside this program.
    #[arg(long, value_name = "FILE", env = "DXPU_PERF_SHIM")]
    shim: Option<PathBuf>,
    /// How the shim comes into the program.
    #[arg(long, value_enum, default_value = "preload")]
    way: Way,
    /// The program and its arguments, behind `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RangeArg {
    All,
    Profiler,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlaceArg {
    Gpu,
    Cpu,
}

impl ShimArgs {
    /// The profile that was asked for, with this round trip where there is one.
    ///
    /// # Errors
    /// One that cannot be.
    pub(super) fn profile(&self, rtt: Option<Nanos>) -> Result<Profile> {
        self.fabric.profile(rtt)
    }

    /// What the shim is to do in this profile.
    ///
    /// # Errors
    /// A kind that is both on and off.
    pub(super) fn settings(&self, profile: &Profile) -> Result<Settings> {
        let mut settings = self.kinds.settings(profile.fabric)?;
        settings.place = match self.place {
            PlaceArg::Gpu => Place::Gpu,
            PlaceArg::Cpu => Place::Cpu,
        };
        settings.proxies = self.proxies.into();
        settings.measure_every = self.measure_every;
        settings.push_copies = self.push_copies;
        settings.delay_cost = profile.delay_cost();
        settings.event_cost = profile.event_cost.unwrap_or(Nanos::ZERO);
        settings.range = match self.range {
            RangeArg::All => Range::All,
            RangeArg::Profiler => Range::Profiler,
        };
        Ok(settings)
    }

    /// The program with the shim.
    ///
    /// # Errors
    /// The shim is not to be found.
    pub(super) fn launch(&self) -> Result<Launch> {
        let shim = launch::find_shim(self.shim.as_deref()).context("the shim")?;
        Ok(Launch { shim, way: self.way, command: self.command.clone() })
    }
}

fn sizes(text: &str) -> Result<PushCopies, String> {
    let (least, most) =
        text.split_once('-').ok_or_else(|| format!("{text:?}: LEAST-MOST is wanted, as 1-1MiB"))?;
    let (least, most) = (quantity::bytes(least)?, quantity::bytes(most)?);
    if least > most {
        return Err(format!("{least} bytes are more than {most}"));
    }
    Ok(PushCopies { least, most })
}
