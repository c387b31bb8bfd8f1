//! What a lender can say.

use super::Waiting;
use crate::operations::lease::MAX_LEASE_MS;
use crate::types::{AllocationId, BindingId, NodeName, Place};
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use std::time::Duration;

/// What the lender does.
#[derive(Debug, Subcommand)]
pub enum Lender {
    /// Lend something for so long from now on; a lease is never shortened
    Extend(Extend),
    /// Take back what was lent: the borrower is told, then its operating system is asked, then by
    /// force
    TakeBack(TakeBack),
    /// Put another device of the same kind in the place of a lent one, on the same host; all or
    /// nothing. The host needs a free port
    Replace(Replace),
    /// Empty something: it gets nothing new, and what is lent of it is released or replaced. It stays
    /// held back until `maintain --off`
    Drain(Drain),
    /// Hold something back, so that it gets nothing new, or let it be used again. What is lent there
    /// stays
    Maintain(Maintain),
    /// Forget a host or box that is gone for good, so that nothing waits for it. It must not be
    /// connected. One of that name that comes later is new
    Forget(Forget),
    /// List what is held back, and why
    Holds,
    /// List what is not healthy, or was not lately: proxies, paths and devices
    Health,
    /// List the spares of each model: how many there are, how many are needed, and the calculation
    Spares,
}

/// Of `extend`.
#[derive(Debug, ClapArgs)]
pub struct Extend {
    /// What, alloc-N
    pub allocation: AllocationId,
    /// How long from now on, such as 1h
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub lease: Duration,
}

/// Of commands that take something from its borrower.
#[derive(Debug, ClapArgs)]
pub struct Taking {
    /// How long each operating system has to let go before it is made to, milliseconds
    #[arg(long, value_name = "MS")]
    pub within_ms: Option<u32>,
    /// Why, for other people: the borrower, and whoever looks at what is held back
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// How to wait
    #[command(flatten)]
    pub waiting: Waiting,
}

/// Of `take-back`.
#[derive(Debug, ClapArgs)]
pub struct TakeBack {
    /// What: alloc-N, bind-N, BOX/SLOT, or everything of a host or box by its name, of rack:NAME or
    /// of site:NAME
    pub what: String,
    /// How long the borrower has to give it back itself, such as 5m
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = grace)]
    pub grace: Duration,
    /// How it goes
    #[command(flatten)]
    pub taking: Taking,
}

/// Of `replace`.
#[derive(Debug, ClapArgs)]
pub struct Replace {
    /// Which, bind-N
    pub binding: BindingId,
    /// Take the old one by force, without asking the operating system: it is broken
    #[arg(long, conflicts_with = "within_ms")]
    pub force: bool,
    /// How it goes
    #[command(flatten)]
    pub taking: Taking,
}

/// Of `drain`.
#[derive(Debug, ClapArgs)]
pub struct Drain {
    /// What: BOX/SLOT, a host or box by its name, rack:NAME, site:NAME, fabric:NAME or path:N
    pub place: Place,
    /// Replace devices by others on the same hosts instead of releasing them
    #[arg(long)]
    pub replace: bool,
    /// How it goes
    #[command(flatten)]
    pub taking: Taking,
}

/// Of `forget`.
#[derive(Debug, ClapArgs)]
pub struct Forget {
    /// Name of the host or box
    pub name: NodeName,
    /// Also when something is lent there, which ends as lost
    #[arg(long)]
    pub force: bool,
    /// How to wait
    #[command(flatten)]
    pub waiting: Waiting,
}

/// Of `maintain`.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("which").required(true).args(["on", "off"]))]
pub struct Maintain {
    /// What: BOX/SLOT, a host or box by its name, rack:NAME, site:NAME, fabric:NAME or path:N
    pub place: Place,
    /// Hold it back
    #[arg(long, requires = "reason")]
    pub on: bool,
    /// Let it be used again
    #[arg(long, conflicts_with = "reason")]
    pub off: bool,
    /// Why, for other people
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

fn time(text: &str, least_ms: u64) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let least = Duration::from_millis(least_ms);
    if (least_ms..=MAX_LEASE_MS).contains(&ms) && time >= least {
        return Ok(time);
    }
    Err("1ms to 10 years, such as 30m, 2h or 7days".to_owned())
}

/// Of `--lease`.
pub(super) fn lease(text: &str) -> Result<Duration, String> {
    time(text, 1)
}

/// Of `--grace`.
fn grace(text: &str) -> Result<Duration, String> {
    time(text, 0)
}
