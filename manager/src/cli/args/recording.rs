//! What is recorded and measured of TLPs on their way.

use super::quantity::{duration, size};
use crate::recorder::latency::{MAX_SLOWEST, MAX_WINDOW_MS, MIN_WINDOW_MS};
use crate::recorder::recordings::{MAX_DURATION_MS, MAX_LIMIT};
use crate::types::{BindingId, NodeName, RecordingId, Role};
use clap::{Args as ClapArgs, ValueEnum};
use manager_client::views::Format;
use std::path::PathBuf;
use std::time::Duration;

/// Of `stamps`.
#[derive(Debug, ClapArgs)]
pub struct Stamps {
    /// The proxy
    pub node: NodeName,
    /// Set the sampling instead of reading: off, all, or N for one in N. The stamps that are there
    /// are thrown away
    #[arg(long, value_name = "off|all|N")]
    pub sampling: Option<String>,
}

/// Of `record`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Formats: `frames` is pcapng of the frames that carried the binding's records; \
records of others in them are replaced by NOPs. `tlps` is pcapng of TLPs alone. Both have both ends' \
stage stamps in packet comments. `perfetto` is a trace in JSON for ui.perfetto.dev. \
tlp-codec/wireshark has the dissector for the first two."
)]
pub struct Record {
    /// The binding, bind-N: `allocations` lists them
    pub binding: BindingId,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// What is written [default: perfetto to *.json, else frames]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// How long
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = recorded_time)]
    pub duration: Duration,
    /// Memory that it may take at the manager; when it is reached, the recording ends
    #[arg(long, default_value = "64MB", value_name = "SIZE", value_parser = recorded_size)]
    pub limit: u64,
    /// Keep so many bytes of each TLP or frame [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub snap: Option<u16>,
    /// The proxy that it is seen from
    #[arg(long, value_enum, default_value_t = SeenFrom::Host)]
    pub seen_from: SeenFrom,
}

/// Which proxy a recording is seen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SeenFrom {
    /// The host's.
    Host,
    /// The box's.
    Box,
}

impl From<SeenFrom> for Role {
    fn from(from: SeenFrom) -> Role {
        match from {
            SeenFrom::Host => Role::Host,
            SeenFrom::Box => Role::Box,
        }
    }
}

/// Of `fetch`.
#[derive(Debug, ClapArgs)]
pub struct Fetch {
    /// The recording, rec-N: `recordings` lists them. One that runs is waited for; Ctrl-C ends it
    pub recording: RecordingId,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Of `latency`.
#[derive(Debug, ClapArgs)]
pub struct Latency {
    /// Only this host's or this box's devices
    pub node: Option<NodeName>,
    /// How long it is looked
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = window)]
    pub window: Duration,
    /// Stamp one request in so many
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub one_in: u32,
    /// Show so many slow requests
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u16).range(0..=MAX_SLOWEST as i64))]
    pub slowest: u16,
}

/// Of `record --for`.
fn recorded_time(text: &str) -> Result<Duration, String> {
    duration(text, 1..=MAX_DURATION_MS)
}

/// Of `record --limit`.
fn recorded_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    let most = MAX_LIMIT;
    if (1..=most).contains(&bytes) { Ok(bytes) } else { Err(format!("1 to {most} bytes")) }
}

/// Of `latency --window`.
fn window(text: &str) -> Result<Duration, String> {
    duration(text, MIN_WINDOW_MS..=MAX_WINDOW_MS)
}
