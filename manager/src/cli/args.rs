//! What can be said on the command line.

use super::output::Form;
use crate::config::{LogFormat, Said};
use crate::firmware::start::{MAX_WAVE, MAX_WITHIN_S};
use crate::recorder::latency::{MAX_SLOWEST, MAX_WINDOW_MS, MIN_WINDOW_MS};
use crate::recorder::recordings::{MAX_DURATION_MS, MAX_LIMIT};
use crate::types::{
    BindingId, NodeName, OperationId, PlaceName, ProblemCode, RecordingId, Role, Selector,
    SlotAddress, Together,
};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use manager_client::bodies::{DEFAULT_WITHIN_S, LogLevelName};
use manager_client::views::Format;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

mod lender;

pub use lender::{Drain, Extend, Forget, Lender, Maintain, Replace, TakeBack};

pub(super) const EXIT_CODES: &str = "Exit codes:
  0  done
  1  anything not named below
  2  the command line or the request is not valid
  3  there is no such host, box, slot, allocation, binding, operation, recording or image
  4  conflict: the slot is in use, empty, busy or quarantined; the card is in use, the image is not
     for it, or a rollout runs
  5  nothing fits the request
  6  the manager cannot be reached, or a proxy is not connected
  7  the operation failed or did not end in time, or a card of a rollout failed
  8  the store cannot be used (locked, damaged, unreadable, full), or `store check` found damage
  9  an address cannot be listened on
  10 the operating system did not enable a device in time, and nothing of the allocation stays lent

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
        /// The least that it logs
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

/// Of `store`.
#[derive(Debug, Subcommand)]
pub enum StoreFile {
    /// Read every record of every table and name each that does not read: table, key, reason. Exit
    /// code 0: all read, or none is left that does not; 8: some do not, or the store cannot be used
    Check {
        /// Take out what does not read. It is written to a JSON file beside the store, and the
        /// store is kept as it was. Counters are never taken out
        #[arg(long)]
        repair: bool,
        /// The store
        #[arg(long, env = "DXPU_MANAGER_STORE", default_value = crate::config::DEFAULT_STORE,
              value_name = "FILE")]
        store: PathBuf,
    },
}

/// Of `serve`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Flags go before environment, environment before the file. The file is TOML \
with the keys listen, control, store, ready_file, host_grace_s, connections, log, log_format and tables [health], [spares], [keep] (docs/operations.md) and [timing] \
(milliseconds): http_ms, hello_ms, request_ms, unbind_ms, ping_ms, silence_ms, doubt_ms, reconcile_ms, \
operation_ms, enumeration_ms, orderly_ms, lease_warning_ms, lease_grace_ms. Tables [[erase]] say how \
released devices are erased."
)]
pub struct Serve {
    /// Configuration file (TOML)
    #[arg(long, env = "DXPU_MANAGER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the REST API listens; port 0 takes a free one. It asks nobody who they are: keep it
    /// on this machine or a management network [default: 127.0.0.1:7780]
    #[arg(long, env = "DXPU_MANAGER_LISTEN", value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// Where proxies dial in [default: 0.0.0.0:7781]
    #[arg(long, env = "DXPU_MANAGER_CONTROL", value_name = "IP:PORT")]
    pub control: Option<SocketAddr>,
    /// The store's file; made if it is not there [default: dxpu-manager.redb]
    #[arg(long, env = "DXPU_MANAGER_STORE", value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Write {"pid", "listen", "control", "term"} to this file when everything listens
    #[arg(long, env = "DXPU_MANAGER_READY_FILE", value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Take devices back from a host that has had no root complex for so long: it was switched off,
    /// killed or not started. Its proxy is there and says so. 0: never [default: 60]
    #[arg(long, env = "DXPU_MANAGER_HOST_GRACE_S", value_name = "SECONDS")]
    pub host_grace_s: Option<u32>,
    /// Which log lines go to stderr: error, warn, info, debug, trace, or per module
    /// [default: info]
    #[arg(long, env = "DXPU_MANAGER_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How log lines look [default: text]
    #[arg(long, env = "DXPU_MANAGER_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    #[command(flatten)]
    unused: Unused,
}

/// What every command takes and the server has no use for: taken, and not shown.
#[derive(Debug, ClapArgs)]
struct Unused {
    #[arg(long, hide = true, default_value = "")]
    server: String,
    #[arg(long, hide = true)]
    json: bool,
    #[arg(long, short, hide = true, value_enum)]
    output: Option<Form>,
}

/// Whether something is shown once.
#[derive(Debug, ClapArgs)]
pub struct Watching {
    /// Show it again whenever it has changed, until interrupted
    #[arg(long, short)]
    pub watch: bool,
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

impl From<Serve> for Said {
    fn from(args: Serve) -> Said {
        Said {
            config: args.config,
            listen: args.listen,
            control: args.control,
            store: args.store,
            ready_file: args.ready_file,
            host_grace_s: args.host_grace_s,
            log: args.log,
            log_format: args.log_format,
        }
    }
}

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
    /// Paths to use as long as one of them works, with commas between them [default: all]
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
    #[arg(long, value_name = "TIME", value_parser = lender::lease)]
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
    /// Leave devices plugged that the operating system does not enable in time (it has no driver for
    /// them, or is not up yet), and count that as done; else nothing of it stays lent
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

/// A rate such as `250M`: bytes a second, in powers of 1000.
fn rate(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K', 'M', 'G']) {
        Some(number) if text.ends_with('G') => (number, 1_000_000_000),
        Some(number) if text.ends_with('M') => (number, 1_000_000),
        Some(number) => (number, 1000),
        None => (text, 1),
    };
    let rate = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    rate.filter(|&rate| rate > 0).ok_or_else(|| "a number of bytes a second, such as 250M".into())
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
pub struct Push {
    /// The image's file, as `dxpu-flash image build` makes it
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Only this card; may be said several times, and gives the order
    #[arg(long = "node", value_name = "NAME", required_unless_present = "all")]
    pub nodes: Vec<NodeName>,
    /// All cards that are connected and that the image is for
    #[arg(long, conflicts_with = "nodes")]
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
    /// Time that a card has at most to be connected, and then to start what it got, seconds
    #[arg(long, default_value_t = DEFAULT_WITHIN_S, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WITHIN_S)))]
    pub within_s: u32,
    /// Print the rollout and do not wait for it
    #[arg(long)]
    pub no_wait: bool,
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

/// A size such as `64M` or `64MB`: bytes, in powers of 1000.
fn size(text: &str) -> Result<u64, String> {
    rate(text.strip_suffix('B').unwrap_or(text))
        .map_err(|_| "a number of bytes, such as 64MB".to_owned())
}

/// A duration such as `10s` or `1500ms`, within bounds in milliseconds.
fn duration(text: &str, bounds: RangeInclusive<u32>) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if bounds.contains(&duration.as_millis().try_into().unwrap_or(u32::MAX)) {
        return Ok(duration);
    }
    let show = |ms: u32| humantime::format_duration(Duration::from_millis(ms.into()));
    Err(format!("{} to {}", show(*bounds.start()), show(*bounds.end())))
}

/// Of `record --for`.
fn recorded_time(text: &str) -> Result<Duration, String> {
    duration(text, 1..=MAX_DURATION_MS)
}

/// Of `latency --window`.
fn window(text: &str) -> Result<Duration, String> {
    duration(text, MIN_WINDOW_MS..=MAX_WINDOW_MS)
}

/// Of `record --limit`.
fn recorded_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    let most = MAX_LIMIT;
    if (1..=most).contains(&bytes) { Ok(bytes) } else { Err(format!("1 to {most} bytes")) }
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

/// Of `record`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Formats: `frames` is pcapng of the frames that carried the binding's records; \
records of others in them are replaced by NOPs. `tlps` is pcapng of TLPs alone, with both ends' \
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
