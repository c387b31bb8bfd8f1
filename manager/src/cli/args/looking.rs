//! What is shown, how much of it, and whether it goes on.

use crate::types::{NodeName, OperationId};
use clap::Args as ClapArgs;

/// Whether something is shown once.
#[derive(Debug, ClapArgs)]
pub struct Watching {
    /// Show it again whenever it has changed, until interrupted
    #[arg(long, short)]
    pub watch: bool,
}

/// Of `list`.
#[derive(Debug, ClapArgs)]
pub struct List {
    /// Only what can be lent
    #[arg(long, conflicts_with = "used")]
    pub free: bool,
    /// Only what is lent
    #[arg(long)]
    pub used: bool,
    /// Only this model
    #[arg(long)]
    pub model: Option<String>,
    /// Only this box
    #[arg(long = "box", value_name = "NAME")]
    pub box_name: Option<NodeName>,
    /// Only what this host has
    #[arg(long, value_name = "NAME")]
    pub host: Option<NodeName>,
    /// Whether once
    #[command(flatten)]
    pub watching: Watching,
}

/// Of `tables`.
#[derive(Debug, ClapArgs)]
pub struct Tables {
    /// Only this host's
    #[arg(long, value_name = "NAME", conflicts_with = "box_name")]
    pub host: Option<NodeName>,
    /// Only this box's
    #[arg(long = "box", value_name = "NAME")]
    pub box_name: Option<NodeName>,
    /// Whether once
    #[command(flatten)]
    pub watching: Watching,
}

/// Of `events`.
#[derive(Debug, ClapArgs)]
pub struct Events {
    /// Go on with new ones until interrupted
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with this sequence number
    #[arg(long, value_name = "N")]
    pub since: Option<u64>,
    /// At most so many of those that there are
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

/// Of `audit`.
#[derive(Debug, ClapArgs)]
pub struct Audit {
    /// Only of this actor
    #[arg(long, value_name = "TEXT")]
    pub actor: Option<String>,
    /// Only requests to paths that begin so
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Only what began this operation
    #[arg(long, value_name = "OP")]
    pub operation: Option<OperationId>,
    /// Only what was refused
    #[arg(long)]
    pub refused: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Whether once
    #[command(flatten)]
    pub watching: Watching,
}
