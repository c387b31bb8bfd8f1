//! Of `firmware`.

use crate::firmware::start::{MAX_WAVE, MAX_WITHIN_S};
use crate::types::NodeName;
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use manager_client::bodies::DEFAULT_WITHIN_S;
use std::path::PathBuf;

/// Of `firmware`.
#[derive(Debug, Subcommand)]
pub enum Firmware {
    /// List the images that the manager has, and what the cards run
    List,
    /// Bring an image to cards, one wave after the other, and have them start it. Stops after the
    /// first wave in which a card failed: it did not come back, or not with the new image
    Push(Push),
    /// Show how far the latest rollout is
    Status {
        /// Until it has ended
        #[arg(long)]
        watch: bool,
    },
    /// Have a card go back to the image that it had before
    Rollback {
        /// The card
        node: NodeName,
        /// How cards are treated
        #[command(flatten)]
        care: Care,
    },
}

/// Of `firmware push`.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("cards").required(true).args(["nodes", "all"]))]
pub struct Push {
    /// The image's file, as `dxpu-flash image build` makes it
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Only this card; may be said several times, and gives the order
    #[arg(long = "node", value_name = "NAME")]
    pub nodes: Vec<NodeName>,
    /// All cards that are connected and that the image is for
    #[arg(long)]
    pub all: bool,
    /// Cards at a time, at most; never both ends of a binding
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WAVE)))]
    pub wave_size: u32,
    /// How cards are treated
    #[command(flatten)]
    pub care: Care,
}

/// How cards are treated that get other firmware.
#[derive(Debug, ClapArgs)]
pub struct Care {
    /// Restart cards with bindings, too: their devices go away from their hosts, and come back when
    /// the card is back
    #[arg(long)]
    pub interrupt: bool,
    /// Time that a card has at most to be connected, and then to start what it got, seconds; and
    /// that it waits at most for the other end of a binding to be there
    #[arg(long, default_value_t = DEFAULT_WITHIN_S, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WITHIN_S)))]
    pub within_s: u32,
    /// Print the rollout and do not wait for it
    #[arg(long)]
    pub no_wait: bool,
}
