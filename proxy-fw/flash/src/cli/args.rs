//! What can be said on the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use card_image::{BoardName, KeyId, Role, SlotId, Version};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::image::parse_version;
use crate::probe::ProbeName;

const AFTER: &str = "Exit codes:
  0  done
  1  anything not named below
  2  the command line, or a file that it names, is not valid
  3  no probe, or it cannot be used
  4  no card answers, or it is another board
  5  the image is one that the card would refuse
  6  the flash failed, or does not have what it should
  7  the connection was lost on the way; writing goes on where it was when it is done again
     without --erase-all, which begins anew

A card is first given everything at once:
  dxpu-flash write --erase-all --boot-loader boot --no-start fw-box.img
  dxpu-flash config set name=box-1 manager=10.0.0.1:7781
and later only `dxpu-flash write IMAGE`. docs/flash.md leads from the box to the manager's list.";

/// Puts firmware on a card, and shows what is on it, through a debug probe.
#[derive(Debug, Parser)]
#[command(name = "dxpu-flash", version, about, after_help = AFTER, max_term_width = 100)]
pub struct Args {
    /// The probe: VID:PID or VID:PID:SERIAL on USB, or remote-bitbang:HOST:PORT; the only one on
    /// USB if nothing is said [env: DXPU_PROBE]
    #[arg(long, global = true, value_name = "PROBE")]
    pub probe: Option<ProbeName>,
    /// The board, of those that the program knows; found by its IDCODE if nothing is said [env:
    /// DXPU_BOARD]
    #[arg(long, global = true, value_name = "NAME", value_parser = board_name)]
    pub board: Option<BoardName>,
    /// Another board's file [env: DXPU_BOARD_FILE, before DXPU_BOARD]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "board")]
    pub board_file: Option<PathBuf>,
    /// Clock of the JTAG port, if it is not to be the board's
    #[arg(long, global = true, value_name = "KHZ", value_parser = clap::value_parser!(u32).range(1..))]
    pub clock: Option<u32>,
    /// A further key whose images the card's boot loader starts, with its number
    #[arg(long, global = true, value_name = "NUMBER=FILE", value_parser = trusted)]
    pub trust: Vec<(KeyId, PathBuf)>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// What the probe is made to do, to standard error: a level, such as debug, or
    /// target=level pairs
    #[arg(long, global = true, env = "DXPU_PROBE_LOG", value_name = "FILTER")]
    pub probe_log: Option<String>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// What of the probe's log is shown. A variable that is empty says nothing, as others do.
    #[must_use]
    pub fn probe_filter(&self) -> Option<&str> {
        self.probe_log.as_deref().filter(|filter| !filter.is_empty())
    }

    /// Takes the probe and the board from the environment, where the command line names none: a
    /// variable that is empty says nothing, and of the board's two either may be set while a command
    /// names the other one.
    ///
    /// # Errors
    ///
    /// What is wrong with a name.
    pub fn take_environment(
        &mut self,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), String> {
        let of = |name| environment(name).filter(|value| !value.is_empty());
        if self.probe.is_none()
            && let Some(name) = of("DXPU_PROBE")
        {
            let name = name.to_string_lossy();
            let probe = name.parse::<ProbeName>();
            self.probe = Some(probe.map_err(|error| format!("DXPU_PROBE={name}: {error}"))?);
        }
        if self.board.is_some() || self.board_file.is_some() {
            return Ok(());
        }
        self.board_file = of("DXPU_BOARD_FILE").map(PathBuf::from);
        if self.board_file.is_none()
            && let Some(name) = of("DXPU_BOARD")
        {
            let name = name.to_string_lossy();
            let board = board_name(&name);
            self.board = Some(board.map_err(|error| format!("DXPU_BOARD={name}: {error}"))?);
        }
        Ok(())
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the probes on this computer, and the card behind each; without any it fails
    List,
    /// Show what a card is and what is in its flash; its program stands still for a moment
    Info,
    /// Write an image to a slot and have it started, or a boot loader, or erase all
    Write(Write),
    /// Check what is in the flash: an image's signature and digest, or every byte of a file; the
    /// card's program stands still meanwhile
    Verify(Verify),
    /// Copy a region of the flash to a file; the card's program stands still meanwhile
    Read(Read),
    /// Erase a region of the flash
    Erase(Erase),
    /// Reset the card
    Reset {
        /// Stop it before its first instruction
        #[arg(long)]
        halt: bool,
    },
    /// The card's own settings: who it is, and where its manager is
    #[command(subcommand)]
    Config(Config),
    /// Show the firmware's log as it comes, until this is interrupted
    Log(Log),
    /// Make, sign and look at images; no card is needed
    #[command(subcommand)]
    Image(Image),
}

/// What is to be written.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct Write {
    /// The image, as `dxpu-flash image build` makes it
    #[arg(group = "what")]
    pub image: Option<PathBuf>,
    /// The slot for the image; the one that is not in use if nothing is said
    #[arg(long, value_parser = slot, requires = "image")]
    pub slot: Option<SlotId>,
    /// The boot loader: an ELF file, or what the firmware's build makes of it (boot.bin)
    #[arg(long, value_name = "FILE", group = "what")]
    pub boot_loader: Option<PathBuf>,
    /// First erase everything: boot loader, boot state, settings and both slots
    #[arg(long, group = "what")]
    pub erase_all: bool,
    /// Leave the card halted instead of resetting it
    #[arg(long)]
    pub no_start: bool,
}

/// What is to be checked.
#[derive(Debug, ClapArgs)]
pub struct Verify {
    /// The image that is to be in a slot; if none is named, the images that are there are checked
    pub image: Option<PathBuf>,
    /// Only this slot
    #[arg(long, value_parser = slot)]
    pub slot: Option<SlotId>,
    /// The boot loader that is to be there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["image", "slot"])]
    pub boot_loader: Option<PathBuf>,
}

/// A part of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The boot loader
    BootLoader,
    /// The boot state
    BootState,
    /// The settings
    Config,
    /// Slot a
    SlotA,
    /// Slot b
    SlotB,
    /// All of these
    All,
}

/// What is to be read.
#[derive(Debug, ClapArgs)]
pub struct Read {
    /// Which region
    #[arg(value_enum)]
    pub part: Part,
    /// The file; it must not be there yet
    pub file: PathBuf,
}

/// What is to be erased.
#[derive(Debug, ClapArgs)]
pub struct Erase {
    /// Which region
    #[arg(value_enum)]
    pub part: Part,
}

/// Settings.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show the settings
    Get,
    /// Change settings and keep the others; the card starts anew with them. Keys: name, manager
    /// (ADDRESS:PORT), address (dhcp or ADDRESS/PREFIX), gateway, vlan, places, trial (seconds),
    /// log (level), trust (NUMBER:KEY,... of images that are started, too), downgrade (refuse or allow)
    Set {
        /// KEY=VALUE, or KEY= to take a setting away
        #[arg(value_parser = assignment, required_unless_present = "file")]
        settings: Vec<(String, String)>,
        /// All settings from a file with a line KEY = VALUE for each, before those named here
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Leave the card halted after a change, instead of resetting it
        #[arg(long)]
        no_start: bool,
    },
}

/// How the log is shown.
#[derive(Debug, ClapArgs)]
pub struct Log {
    /// The firmware's ELF file, which has the texts of the log
    #[arg(long, value_name = "FILE")]
    pub elf: PathBuf,
    /// Where the console's bytes come from, instead of the probe (RTT): a serial device that is
    /// set up, a file that grows, or ADDRESS:PORT
    #[arg(long, value_name = "WHERE")]
    pub uart: Option<Uart>,
    /// Only this level and those above it
    #[arg(long, value_enum, default_value = "trace")]
    pub level: Level,
    /// End with the file's end instead of waiting for more
    #[arg(long, requires = "uart")]
    pub no_follow: bool,
}

/// Where a console's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uart {
    /// A file, a device or a pipe.
    File(PathBuf),
    /// A TCP server.
    Tcp(SocketAddr),
}

impl FromStr for Uart {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::File(text.into()), Self::Tcp))
    }
}

/// Levels of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Everything
    Trace,
    /// What helps to find a mistake
    Debug,
    /// What happens
    Info,
    /// What should not happen
    Warn,
    /// What failed
    Error,
}

/// Images.
#[derive(Debug, Subcommand)]
pub enum Image {
    /// Make an image of a firmware's ELF file
    Build(Build),
    /// Sign an image
    Sign {
        /// The image
        image: PathBuf,
        /// The key to sign with
        #[command(flatten)]
        key: SigningKey,
        /// Where the signed one goes; in its place if nothing is said
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show what an image says, and check it
    Inspect {
        /// The image
        image: PathBuf,
    },
    /// Make a new key to sign with: PEM, for its owner's eyes only; the public half is
    /// printed, and goes to a file beside it: own.pub of own.pem
    Keygen {
        /// The file; it must not be there yet
        file: PathBuf,
    },
}

/// A key to sign with.
#[derive(Debug, ClapArgs)]
pub struct SigningKey {
    /// The secret key: PEM (PKCS#8, Ed25519), or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The number under which cards know it
    #[arg(long, value_name = "NUMBER", value_parser = key_number)]
    pub key_number: KeyId,
}

/// What an image is made of.
#[derive(Debug, ClapArgs)]
pub struct Build {
    /// The firmware, as cargo built it
    pub elf: PathBuf,
    /// The image
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// The role that it is for: host, box or any
    #[arg(long, value_parser = role)]
    pub role: Role,
    /// Its version, for people: 1.2.3 or 1.2.3+BUILD
    #[arg(long = "image-version", value_name = "VERSION", value_parser = parse_version)]
    pub version: Version,
    /// Its version, for anti-downgrade: raised only by a release that closes a hole
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub security_version: u32,
    /// Sign it with this key (PEM or 64 hexadecimal digits)
    #[arg(long, value_name = "FILE", requires = "key_number")]
    pub key: Option<PathBuf>,
    /// The number under which cards know the key
    #[arg(long, value_name = "NUMBER", value_parser = key_number, requires = "key")]
    pub key_number: Option<KeyId>,
}

fn board_name(text: &str) -> Result<BoardName, card_image::BadName> {
    BoardName::new(text)
}

fn slot(text: &str) -> Result<SlotId, &'static str> {
    match text {
        "a" => Ok(SlotId::A),
        "b" => Ok(SlotId::B),
        _ => Err("a slot is a or b"),
    }
}

fn role(text: &str) -> Result<Role, &'static str> {
    [Role::Any, Role::Host, Role::Box]
        .into_iter()
        .find(|role| role.to_string() == text)
        .ok_or("a role is host, box or any")
}

/// A number that is not 0, decimal or hexadecimal.
fn key_number(text: &str) -> Result<KeyId, &'static str> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = number.ok().filter(|number| *number != 0);
    number.map(KeyId).ok_or("a key's number is 1 to 4294967295, or hexadecimal with 0x")
}

fn trusted(text: &str) -> Result<(KeyId, PathBuf), String> {
    let (number, file) = text.split_once('=').ok_or("NUMBER=FILE is wanted")?;
    Ok((key_number(number)?, file.into()))
}

fn assignment(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is wanted")?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || text.contains(['\n', '\r', '#']) {
        return Err("a key is a word; values have no # and no line breaks");
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use proptest::prelude::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("dxpu-flash").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_makes_sense_is_read() {
        for line in [
            "list",
            "--probe remote-bitbang:127.0.0.1:1 info --json",
            "write a.img",
            "write a.img --slot b --no-start",
            "write --erase-all",
            "write --erase-all --boot-loader boot a.img",
            "verify",
            "verify a.img --slot a",
            "verify --boot-loader boot",
            "read slot-a out",
            "erase config",
            "reset --halt",
            "config get",
            "config set name=a vlan=",
            "config set --file f",
            "log --elf e --uart 127.0.0.1:5000 --level warn",
            "log --elf e --uart /dev/ttyUSB0 --no-follow",
            "image build e -o i --role box --image-version 1.2.3 --key k --key-number 0x17",
            "image sign i --key k --key-number 1",
            "image inspect i --trust 0x17=k.pub --board qemu-virt",
            "image keygen k",
            "list --probe-log debug",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "write",
            "write --slot a",
            "write a.img --slot c",
            "verify a --boot-loader b",
            "config set",
            "config set name",
            "config set =x",
            "log",
            "log --elf e --no-follow",
            "image build e -o i --role box --image-version 1.2.3 --key k",
            "image build e -o i --role fox --image-version 1.2.3",
            "image sign i --key k --key-number 0",
            "--board X list",
            "--board a --board-file b list",
            "--clock 0 list",
            "--probe usb list",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    /// What board a command line means where these variables are set.
    fn board(
        line: &str,
        set: &[(&str, &str)],
    ) -> Result<(Option<String>, Option<PathBuf>), String> {
        let mut args = parse(line).unwrap();
        let of = |name: &str| Some(set.iter().find(|variable| variable.0 == name)?.1.into());
        args.take_environment(of)?;
        Ok((args.board.map(|board| board.to_string()), args.board_file))
    }

    #[test]
    fn a_board_is_named_by_the_command_line_or_else_by_the_environment() {
        let named = |name: &str| Ok((Some(name.to_owned()), None));
        let file = |path: &str| Ok((None, Some(path.into())));
        let both = [("DXPU_BOARD_FILE", "f.yaml"), ("DXPU_BOARD", "litex")];
        assert_eq!(board("list", &[]), Ok((None, None)));
        assert_eq!(board("list", &both[..1]), file("f.yaml"));
        assert_eq!(board("list", &both[1..]), named("litex"));
        assert_eq!(board("list", &both), file("f.yaml"));
        assert_eq!(board("--board qemu-virt list", &both), named("qemu-virt"));
        assert_eq!(board("--board-file g.yaml list", &both), file("g.yaml"));
        assert_eq!(board("list", &[("DXPU_BOARD_FILE", ""), both[1]]), named("litex"));
        assert!(board("list", &[("DXPU_BOARD", "No Board")]).unwrap_err().contains("DXPU_BOARD"));
    }

    #[test]
    fn a_probe_is_named_by_the_command_line_or_else_by_the_environment() {
        let probe = |line: &str, set: &str| {
            let mut args = parse(line).unwrap();
            args.take_environment(|name| (name == "DXPU_PROBE").then(|| set.into()))?;
            Ok::<_, String>(args.probe.map(|probe| probe.to_string()))
        };
        let (one, other) = ("remote-bitbang:h:1", "remote-bitbang:h:2");
        assert_eq!(probe("list", one), Ok(Some(one.to_owned())));
        assert_eq!(probe(&format!("--probe {other} list"), one), Ok(Some(other.to_owned())));
        assert_eq!(probe("list", ""), Ok(None));
        assert!(probe("list", "usb").unwrap_err().starts_with("DXPU_PROBE=usb: "));
    }

    #[test]
    fn an_empty_filter_shows_nothing() {
        // As from the environment, which clap reads by itself.
        let filter = |line: &str| parse(line).unwrap().probe_filter().map(str::to_owned);
        assert_eq!(filter("list --probe-log="), None);
        assert_eq!(filter("list --probe-log debug"), Some("debug".to_owned()));
    }

    proptest! {
        #[test]
        fn any_words_are_a_command_or_not(words in prop::collection::vec("[a-z0-9=:.-]{0,12}", 0..6)) {
            let _ = Args::try_parse_from(std::iter::once("dxpu-flash".to_owned()).chain(words));
        }
    }
}
