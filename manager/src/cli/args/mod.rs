//! What can be said on the command line.

use super::output::Form;
use crate::types::{NodeName, OperationId, ProblemCode, SlotAddress};
use clap::{Parser, Subcommand};
use manager_client::bodies::LogLevelName;
use std::path::PathBuf;

mod firmware;
mod lender;
mod lending;
mod looking;
mod quantity;
mod recording;
mod serve;

pub use firmware::{Care, Firmware, Push};
pub use lender::{Drain, Extend, Forget, Lender, Maintain, Replace, TakeBack, Taking};
pub use lending::{Allocate, Release, Waiting};
pub use looking::{Audit, Events, List, Tables, Watching};
pub use recording::{Fetch, Latency, Record, SeenFrom, Stamps};
pub use serve::{Serve, StoreFile};

pub(super) const EXIT_CODES: &str = "Exit codes:
  0  done
  1  anything not named below
  2  the command line or the request is not valid
  3  there is no such host, box, slot, allocation, binding, operation, recording or image
  4  conflict: the slot is in use, empty, busy or quarantined; the card is in use, the image is not
     for it, or a rollout runs
  5  nothing fits the request
  6  the manager cannot be reached, or a proxy is not connected
  7  the operation failed or did not end in time, a card of a rollout failed, or a device that was
     to be erased is not
  8  the store cannot be used (locked, damaged, unreadable, full, of a later version), or
     `store check` found damage; of `serve` only what does not pass, for the rest 11
  9  an address cannot be listened on
  10 the operating system did not enumerate a device in time, and nothing of the allocation stays
     lent
  11 `serve` cannot use the store now, and may later: it is in use, or cannot be read or written
  129 ended by a hangup
  130 ended by Ctrl-C
  143 ended by SIGTERM

Start with `dxpu-manager serve`, let proxies dial in (their configuration names the control
address), look at `dxpu-manager list`, then `dxpu-manager allocate --host NAME`.";

/// Lends PCIe devices that are in boxes to hosts: server and command line.
#[derive(Debug, Parser)]
#[command(name = "dxpu-manager", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Args {
    /// The manager to speak to
    #[arg(
        long,
        global = true,
        env = "DXPU_MANAGER",
        default_value = "http://127.0.0.1:7780",
        value_name = "URL"
    )]
    pub server: String,
    /// How results look [default: table]
    #[arg(long, short, global = true, value_enum, value_name = "FORM", conflicts_with = "json")]
    pub output: Option<Form>,
    /// As --output json
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// How results look.
    pub fn form(&self) -> Form {
        if self.json { Form::Json } else { self.output.unwrap_or_default() }
    }
}

impl Command {
    /// Whether what it shows is shown again when it has changed.
    pub fn watches(&self) -> bool {
        let watching = match self {
            Self::List(list) => &list.watching,
            Self::Tables(tables) => &tables.watching,
            Self::Audit(audit) => &audit.watching,
            Self::Show { watching, .. } | Self::Operations { watching, .. } => watching,
            Self::Allocations(watching) | Self::Nodes(watching) => watching,
            _ => return false,
        };
        watching.watch
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the manager until SIGTERM or SIGINT
    Serve(Serve),
    /// Lend devices to a host; all or nothing
    Allocate(Allocate),
    /// Take devices back
    Release(Release),
    /// What the lender does
    #[command(flatten)]
    Lender(Lender),
    /// List the pool: every slot with its device, free or used, and by whom
    List(List),
    /// Show one thing: a box, a host, a slot (BOX/SLOT), alloc-N, bind-N or op-N
    Show {
        /// Its name or number
        what: String,
        /// Whether once
        #[command(flatten)]
        watching: Watching,
    },
    /// List allocations and their bindings
    Allocations(Watching),
    /// List the proxies that were ever here
    Nodes(Watching),
    /// Show the mapping tables, read from the proxies now
    Tables(Tables),
    /// List operations, latest first
    Operations {
        /// Only those that have not ended
        #[arg(long)]
        running: bool,
        /// Whether once
        #[command(flatten)]
        watching: Watching,
    },
    /// Call a running operation back: what it lends is undone, what it takes back stays lent if no
    /// operating system was asked to let go yet
    Cancel {
        /// The operation, op-N
        operation: OperationId,
        /// Do not wait until it is undone
        #[arg(long)]
        no_wait: bool,
    },
    /// Tell what happened in an operation: its steps and events, in order
    Story {
        /// The operation, op-N
        operation: OperationId,
    },
    /// Show what happened
    Events(Events),
    /// Show a proxy's counters, read from it now
    Counters {
        /// The proxy
        node: NodeName,
    },
    /// Set how much a proxy logs, as long as it runs
    LogLevel {
        /// The proxy
        node: NodeName,
        /// The least that it logs; a card takes trace as debug, below which it has no lines
        level: LogLevelName,
    },
    /// Show a proxy's stage stamps, or set which TLPs it stamps
    Stamps(Stamps),
    /// Record what a lent device does, to a file for Wireshark or ui.perfetto.dev
    Record(Record),
    /// List the recordings that run or were not fetched
    Recordings,
    /// Fetch a recording that nobody fetched, for instance because its `record` was killed
    Fetch(Fetch),
    /// Look at the round trips of all lent devices for a moment (`tlp live` goes on looking)
    Latency(Latency),
    /// Show or replace what is said of the pool that proxies cannot know: racks, islands, memory,
    /// bandwidth
    #[command(subcommand)]
    Inventory(Inventory),
    /// Show and replace the firmware of cards
    #[command(subcommand)]
    Firmware(Firmware),
    /// List what was erased between one tenant and the next, and what could not be
    Erasures,
    /// Erase the device in a slot that is not lent, or try that again
    Erase(super::erasures::Erase),
    /// Try again to make a quarantined slot usable
    Recover {
        /// The slot, BOX/SLOT
        slot: SlotAddress,
    },
    /// Show who changed what, latest first: actor, address, request and outcome. The actor is what
    /// the client says, nobody checks it
    Audit(Audit),
    /// Make a backup while the manager runs: all records at one moment, checked and on the disk
    /// when this returns
    Backup {
        /// The file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Put a backup in the store's place. The manager must not run. A backup is what `backup` made,
    /// or a copy of the store's file made while no manager ran. Epochs, node numbers and everything else that is
    /// given out go on above what may have been given out since the backup
    Restore {
        /// The backup
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The store
        #[arg(long, env = "DXPU_MANAGER_STORE", default_value = crate::config::DEFAULT_STORE,
              value_name = "FILE")]
        store: PathBuf,
    },
    /// Look after a store's file that no manager has open
    #[command(subcommand)]
    Store(StoreFile),
    /// Say what kinds of problems there are, what to do about each, and its exit code
    Problems {
        /// Only this kind, such as slot-in-use
        #[arg(value_name = "KIND")]
        code: Option<ProblemCode>,
    },
    /// Print the OpenAPI description of the REST API
    Openapi,
    /// Print what a shell needs to complete this command line
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages: one for the program and one for each command
    Man {
        /// The folder
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
    },
}

/// Of `inventory`.
#[derive(Debug, Subcommand)]
pub enum Inventory {
    /// Show the inventory that is in force, and what proxies report otherwise
    Show,
    /// Put a file in the place of the inventory; all of it, or nothing if it has a fault
    Apply {
        /// The file: TOML, YAML or JSON, by its name's end; - reads YAML or JSON from standard
        /// input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
