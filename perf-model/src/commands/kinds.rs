//! The options that say which operations cost more.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perf_core::{Fabric, Graphs, Kind, Proxies, Settings};

/// Which kinds of operation cost more, and how graphs do.
#[derive(Clone, Debug, Args)]
pub(super) struct KindArgs {
    /// A graph's launch costs one kernel's end, or each of its nodes costs its own.
    #[arg(long, value_enum, default_value = "launch")]
    graphs: GraphsArg,
    /// Kinds that cost nothing more (doorbell and mapped are off unless --on names them):
    /// htod, dtoh, peer, kernel, graph, memset, sync, callback, managed, mapped, doorbell.
    #[arg(long, value_delimiter = ',', value_name = "KIND,...", value_parser = kind)]
    off: Vec<Kind>,
    /// Kinds that do.
    #[arg(long, value_delimiter = ',', value_name = "KIND,...", value_parser = kind)]
    on: Vec<Kind>,
}

/// Which proxies the GPUs are behind.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ProxiesArg {
    One,
    Each,
}

impl From<ProxiesArg> for Proxies {
    fn from(proxies: ProxiesArg) -> Self {
        match proxies {
            ProxiesArg::One => Self::One,
            ProxiesArg::Each => Self::Each,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GraphsArg {
    Launch,
    Node,
}

impl KindArgs {
    /// What costs more in this fabric.
    ///
    /// # Errors
    /// A kind that is both on and off.
    pub(super) fn settings(&self, fabric: Fabric) -> Result<Settings> {
        let mut settings = Settings::of(fabric);
        for kind in &self.on {
            if self.off.contains(kind) {
                bail!("{} is both --on and --off", kind.name());
            }
            settings.off = settings.off.without(*kind);
        }
        for kind in &self.off {
            settings.off = settings.off.with(*kind);
        }
        settings.graphs = match self.graphs {
            GraphsArg::Launch => Graphs::Launch,
            GraphsArg::Node => Graphs::Node,
        };
        Ok(settings)
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        format!("it is none of {}", names.join(", "))
    })
}
