//! The command line.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Read and write PCIe transaction layer packets.
///
/// `tlp decode` turns hex into one line of text (or JSON) for each TLP; `tlp encode` turns those
/// lines back into the same hex. Lines that cannot be read are reported on stderr and the others
/// still go through. `tlp live` shows what a manager sees of round trips.
#[derive(Debug, Parser)]
#[command(name = "tlp", version, after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Decode(Decode),
    Encode(Encode),
    Live(Live),
}

/// Say what TLPs mean.
///
/// Input is hex, one TLP a line: prefixes first, then header, data and digest, as PCIe puts them
/// on the link (the first byte holds Fmt and Type). Blanks, `_`, `:` and a leading `0x` are
/// allowed; empty lines and what follows `#` are not read; lines have 64 KiB at most. Or a capture file (pcap or pcapng)
/// with DxPU frames, in raw Ethernet (EtherType 0x88B5) or in UDP, with or without VLAN tags; or with
/// TLPs alone under link type USER0, as `dxpu-manager record --format tlps` writes them.
///
/// A TLP that was sent again, or captured twice, has the flag `again` each further time, which
/// `tlp encode` passes over; a split TLP is printed once, when all of it is there.
///
/// What comes through a pipe is printed packet by packet, line by line, as it comes.
#[derive(Debug, ClapArgs)]
#[command(after_help = DECODE_EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Decode {
    /// Print a JSON object for each TLP, one a line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Of a capture: print the records that are not TLPs too (sideband, credits). `tlp encode`
    /// passes over them.
    #[arg(long)]
    pub(crate) all: bool,

    /// Read this file: hex lines or a capture. `-` is stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with = "tlps")]
    pub(crate) file: Option<PathBuf>,

    /// TLPs in hex, one an argument; or the name of one file. With neither these nor --file,
    /// stdin is read.
    #[arg(value_name = "HEX|FILE")]
    pub(crate) tlps: Vec<String>,
}

/// Write TLPs as hex from what `tlp decode` prints.
///
/// Input is lines of text or JSON, mixed as they come. Fields may be left out where they have a
/// usual value, so that a TLP can be written by hand. `ecrc=auto` computes the digest.
#[derive(Debug, ClapArgs)]
#[command(after_help = ENCODE_EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct Encode {
    /// Read this file. `-` is stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with = "lines")]
    pub(crate) file: Option<PathBuf>,

    /// TLPs as text or JSON, one an argument. With neither these nor --file, stdin is read.
    #[arg(value_name = "LINE")]
    pub(crate) lines: Vec<String>,
}

/// Show how long round trips take now, per lent device, and which are the slowest.
///
/// A manager stamps requests of all lent devices for one interval after the other. The table has
/// medians of what a round trip consists of: the device itself (original; of requests of a device,
/// the host's memory), the network, and what both proxies take (conversion), as in Table 6 of the
/// DxPU paper. Posted requests have no round trip and are only counted.
#[derive(Debug, ClapArgs)]
#[command(after_help = LIVE_EXAMPLES)]
pub(crate) struct Live {
    /// The manager to ask.
    #[arg(
        long,
        visible_alias = "server",
        env = "DXPU_MANAGER",
        default_value = "http://127.0.0.1:7780",
        value_name = "URL"
    )]
    pub(crate) manager: String,

    /// How long each look is: 10ms to 10s.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Duration,

    /// Stamp one request in so many. Stamping all of a busy device's costs the proxies time.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) one_in: u32,

    /// Show so many slow requests: 100 at most.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) slowest: u8,

    /// Only this host's or this box's devices.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Look once.
    #[arg(long)]
    pub(crate) once: bool,

    /// Print a JSON object for each look, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a manager looks for at a time.
fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let bounds = Duration::from_millis(10)..=Duration::from_secs(10);
    if bounds.contains(&time) { Ok(time) } else { Err("10ms to 10s".into()) }
}

const LIVE_EXAMPLES: &str = "\
Examples:
  tlp live --manager http://10.0.0.1:7780
  tlp live --node box-a --interval 200ms --slowest 10
  tlp live --once --json | jq '.devices[].from_host.p99_ns'

Exit codes: see `tlp --help`.";

const EXIT_CODES: &str = "\
Exit codes:
  0  everything went through
  1  a line or packet could not be read or written; stderr says which and why
  2  wrong usage, a file that could not be read, an argument of `tlp decode` that is neither hex nor
     such a file, or a manager that could not be asked or said no";

const DECODE_EXAMPLES: &str = "\
Examples:
  tlp decode 00000001_0113550f_00001000
  echo 4a000001050000040100050001020304 | tlp decode --json
  tcpdump -i eth0 -U -w - ether proto 0x88b5 | tlp decode
  tlp decode --json capture.pcapng | tlp encode
  dxpu-manager record bind-3 --out tlps.pcapng --format tlps && tlp decode tlps.pcapng

Exit codes: see `tlp --help`. `tlp decode --help` lists the fields.";

const ENCODE_EXAMPLES: &str = "\
Examples:
  tlp encode 'MRd requester=01:00.0 tag=5 address=0x1000 length=4'
  tlp encode 'MWr address=0x2_0000_0000 data=0011223344556677 ecrc=auto'
  tlp decode < tlps.hex | tlp encode

Exit codes: see `tlp --help`. `tlp encode --help` lists the fields.";

const FIELDS: &str = "\
A line of text is the type, then `field=value` for each field, flags as bare words, then `#` and
notes, which are not read back. A JSON object has the same fields and a list of notes.

Types: MRd MRdLk MWr DMWr IORd IOWr CfgRd0 CfgWr0 CfgRd1 CfgWr1 Msg MsgD Cpl CplD CplLk CplDLk
FetchAdd Swap CAS.

Numbers are decimal, 0x... or 0b..., in JSON also as text; IDs are bus:device.function in hex.

  all        requester, tag; tc (0); flags ro, ns, ido, ln, poisoned
             flag again = it came before in the capture; `tlp encode` passes over such ones
             at = untranslated (default), translation-request, translated, reserved
             prefixes = the prefixes' bytes in hex, in wire order
             ecrc = the digest's four bytes in hex, or auto
             reserved = reserved bits that came set, in this program's own arrangement
  memory     address; length in doublewords (reads; default 1); first_be, last_be (default all)
             ph and st = processing hint and steering tag, which set TH
  I/O        address, first_be
  Cfg        destination, register (a byte offset), first_be
  Msg        routing = to-root, by-address, by-id, broadcast, local, gathered, reserved6, reserved7
             code = a name such as Assert_INTA, or a number; fields = header bytes 8 to 15 in hex
  Cpl        completer, status = SC (default), UR, CRS, CA or a number; byte_count (default: what
             the data has, else 4), lower_address; flag bcm
  with data  data = whole doublewords in hex, in the order of their addresses

Exit codes: see `tlp --help`.";
