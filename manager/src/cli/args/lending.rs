//! What a borrower can say, and what is said to wait for an operation.

use super::quantity::rate;
use crate::types::{NodeName, PlaceName, Selector, SlotAddress, Together};
use clap::Args as ClapArgs;
use std::time::Duration;

/// Of commands that start an operation.
#[derive(Debug, ClapArgs)]
pub struct Waiting {
    /// Print the operation and do not wait for it
    #[arg(long)]
    pub no_wait: bool,
    /// Idempotency key: the same key with the same request gives the same operation
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
}

/// Of `allocate`.
#[derive(Debug, ClapArgs)]
pub struct Allocate {
    /// The host that gets the devices
    #[arg(long, value_name = "NAME")]
    pub host: NodeName,
    /// How many
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub count: u32,
    /// Only this model
    #[arg(long)]
    pub model: Option<String>,
    /// Only from this box
    #[arg(long = "box", value_name = "NAME")]
    pub box_name: Option<NodeName>,
    /// Only this slot of the box
    #[arg(long, requires = "box_name", value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub slot: Option<u8>,
    /// Paths to use as long as one of them works, with commas between them; where the two proxies
    /// have none of them, those that they have [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..8))]
    pub paths: Vec<u8>,
    /// How much each device gets of a link that several want: 2 is twice as much as 1
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub weight: u8,
    /// Bytes a second, each way, that each device is not to exceed; k, M and G are allowed
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub limit: Option<u64>,
    /// Bytes a second, each way, that each device has before all others
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub guarantee: Option<u64>,
    /// For how long, such as 2h or 30m; then it is taken back [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = super::lender::lease)]
    pub lease: Option<Duration>,
    /// Only devices with these attributes, such as `memory>=80G,rack=r3|r4,arch,!faulty`. There are
    /// vendor, device, class, model, memory, serial, firmware, functions, box, slot, kind, rack,
    /// site and what the inventory adds
    #[arg(long, value_name = "CONDITIONS", default_value = "", hide_default_value = true)]
    pub selector: Selector,
    /// Only devices of which this CEL expression says true, such as
    /// `memory != null && memory / functions > 10000000000`
    #[arg(long, value_name = "EXPRESSION")]
    pub cel: Option<String>,
    /// How they lie to each other: any (in as few boxes as can be), box (all in one), island (all
    /// in one island of GPUs that reach each other), spread (each in another box)
    #[arg(long, value_name = "HOW", default_value_t = Together::Any)]
    pub together: Together,
    /// Only in an island whose devices reach each other at this rate at least, such as 400G (bytes a second); with
    /// --together island
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub island_rate: Option<u64>,
    /// Take what is in the host's rack first, then what is at its site
    #[arg(long)]
    pub near: bool,
    /// Leave devices plugged that the operating system does not enumerate in time (it is not up yet),
    /// and count that as done; else nothing of it stays lent
    #[arg(long)]
    pub keep_unenumerated: bool,
    /// Nothing in these boxes, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_box: Vec<NodeName>,
    /// Nothing in these racks
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_rack: Vec<PlaceName>,
    /// Not these slots, BOX/SLOT
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    pub exclude_slot: Vec<SlotAddress>,
    /// For whom, for other people and to filter by
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Only say what would be lent and why, or what stands in the way (exit code 5 then)
    #[arg(long)]
    pub dry_run: bool,
    /// Why, for other people
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// How long to try again while what stands in the way may pass by itself, milliseconds: a
    /// proxy that is connecting, a device that is being reset
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    pub wait_ms: u64,
    /// How to wait
    #[command(flatten)]
    pub waiting: Waiting,
}

/// Of `release`.
#[derive(Debug, ClapArgs)]
pub struct Release {
    /// What: alloc-N, bind-N or BOX/SLOT
    #[arg(required = true)]
    pub what: Vec<String>,
    /// At once: do not ask the operating system, do not wait for a host that is away
    #[arg(long)]
    pub force: bool,
    /// How long the operating system has to let go before it is made to, milliseconds
    #[arg(long, value_name = "MS", conflicts_with = "force")]
    pub within_ms: Option<u32>,
    /// How to wait
    #[command(flatten)]
    pub waiting: Waiting,
}
