//! The program: what was asked for, and the card's life.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use object::{Object, ObjectSegment};
use sim_card::bitbang::Server;
use sim_card::card::TICK_NANOS;
use sim_card::debug::{IR_LENGTHS, Place, TunnelParts};
use sim_card::iss::DebugCause;
use sim_card::{Card, Finish, Ran};

use crate::console::Console;
use crate::flash_file::FlashFile;

/// A simulated card: a RISC-V core with flash, behind JTAG that OpenOCD and probe-rs reach as
/// remote-bitbang. It runs until SIGINT or SIGTERM, or until the firmware ends it.
///
/// Exit codes: 0 when it was told to stop, or the firmware said that all is well; 1 when something
/// went wrong here; 2 for a wrong command line; 3 when the firmware said that it failed.
#[derive(Debug, Parser)]
#[command(name = "dxpu-sim-card", version)]
pub(crate) struct Arguments {
    /// Which board the card is
    #[arg(long, value_enum, default_value_t = Kind::QemuVirt)]
    board: Kind,
    /// File with what is in the flash; a new flash when it is not there, or empty. Given twice, the
    /// second is the second bank. Those of qemu-virt are as the files of QEMU's pflash drives
    #[arg(long, value_name = "FILE")]
    flash: Vec<PathBuf>,
    /// Where to listen for a probe's commands; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    bitbang: String,
    /// Where the console goes; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    uart: Option<PathBuf>,
    /// File to write with the address of the probe's port when the card is ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Firmware to load into memory and to begin at, instead of what is in the flash
    #[arg(long, value_name = "ELF")]
    load: Option<PathBuf>,
    /// Halt before the first instruction, for a debugger
    #[arg(long)]
    halted: bool,
    /// A further TAP between TDI and the card's own, with so many bits of instruction register: a
    /// chain as boards have it. It has an IDCODE, and BYPASS
    #[arg(long, value_name = "IR_LENGTH", value_parser = ir_length())]
    tap_before: Option<u32>,
    /// The same between the card's own TAP and TDO
    #[arg(long, value_name = "IR_LENGTH", value_parser = ir_length())]
    tap_after: Option<u32>,
    /// The card's port is an FPGA's, and the core's behind a tunnel through it: bits of the FPGA's
    /// instruction register, the instruction that reaches the tunnel, and bits of the instruction
    /// register behind it. The board litex has 6:0x23:5 unless another is given
    #[arg(long, value_name = "IR_LENGTH:INSTRUCTION:IR_WIDTH", value_parser = tunnel)]
    tunnel: Option<TunnelParts>,
}

/// A board that there are simulated cards of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// As QEMU's riscv32 machine `virt`
    QemuVirt,
    /// A LiteX SoC with a VexRiscv core, in an FPGA
    Litex,
}

impl Kind {
    fn card(self) -> Card {
        match self {
            Self::QemuVirt => Card::new(),
            Self::Litex => Card::litex(),
        }
    }
}

fn ir_length() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::from(u64::from(*IR_LENGTHS.start())..=u64::from(*IR_LENGTHS.end()))
}

/// What a tunnel is like, from the command line.
fn tunnel(said: &str) -> Result<TunnelParts, String> {
    let parts: Vec<&str> = said.split(':').collect();
    let [ir_length, instruction, ir_width] = parts[..] else {
        return Err("give three numbers with colons between them, such as 6:0x23:5".to_owned());
    };
    let number = |text: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| format!("{text:?} is no number"))
    };
    let parts = TunnelParts {
        ir_length: number(ir_length)?,
        instruction: number(instruction)?,
        ir_width: number(ir_width)?,
    };
    parts.check()?;
    Ok(parts)
}

/// Ticks that the core is given at once: a tenth of a millisecond of its time.
const SLICE: u64 = 10_000;
/// How long is waited at once, so that signals are seen.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How often what changed in the flash is written to its files.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// When the card's time is so far behind, it gives up catching up.
const FARTHEST_BEHIND: Duration = Duration::from_millis(100);

/// Runs the card.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut card = arguments.board.card();
    let (banks, _) = card.board.flash();
    if arguments.flash.len() > banks {
        let given = arguments.flash.len();
        bail!(
            "--flash was given {given} times, the card's flash has {banks} bank(s): give a file for each"
        );
    }
    for (place, length) in
        [(Place::Before, arguments.tap_before), (Place::After, arguments.tap_after)]
    {
        if let Some(length) = length {
            card = card.with_tap(place, length);
        }
    }
    if let Some(parts) = arguments.tunnel {
        card = card.with_tunnel(parts);
    }
    let mut files = Vec::new();
    for (bank, path) in arguments.flash.iter().enumerate() {
        files.push(FlashFile::open(path, bank, &mut card)?);
    }
    if let Some(path) = &arguments.load {
        load(path, &mut card)?;
    }
    if arguments.halted {
        card.hart.halt(DebugCause::ResetHaltRequest);
    }
    let console = Console::open(arguments.uart.as_deref())?;
    let server = Server::bind(&arguments.bitbang).with_context(|| {
        format!(
            "cannot listen at {}; give another address with --bitbang, or port 0 for a free one",
            arguments.bitbang
        )
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("the system does not let this program handle signals")?;
    }
    eprintln!("remote-bitbang at {}", server.address());
    if let Some(path) = &arguments.ready_file {
        announce(path, &server)?;
    }
    Life { card, server, console, files }.live(&stop)
}

/// Loads the segments of an ELF file where they run from.
fn load(path: &Path, card: &mut Card) -> Result<()> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read firmware {shown}"))?;
    let file = object::File::parse(&*bytes)
        .with_context(|| format!("{shown} is no ELF file; give the one that cargo built"))?;
    if file.architecture() != object::Architecture::Riscv32 {
        bail!("{shown} is for {:?}; the card needs Riscv32", file.architecture());
    }
    for segment in file.segments() {
        let data = segment.data().with_context(|| format!("{shown} is cut off"))?;
        let at = segment.address();
        u32::try_from(at).ok().and_then(|at| card.load(at, data).ok()).with_context(|| {
            format!("{shown} has {} bytes at {at:#x}, where the card has no memory", data.len())
        })?;
    }
    let entry = u32::try_from(file.entry()).context("the entry is beyond 32 bits")?;
    card.hart.set_pc(entry);
    Ok(())
}

/// Written beside and moved, so that whoever waits for the file never reads half of it.
fn announce(path: &Path, server: &Server) -> Result<()> {
    // Behind the whole name: two cards' files may differ in nothing but what is behind a dot.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, format!("{}\n", server.address()))
        .and_then(|()| std::fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}; is its folder there?", path.display()))
}

struct Life {
    card: Card,
    server: Server,
    console: Console,
    files: Vec<FlashFile>,
}

impl Life {
    /// Until it is stopped or its program ends. What its flash has is saved however that is.
    fn live(&mut self, stop: &AtomicBool) -> Result<ExitCode> {
        let ended = self.run(stop);
        let saved = self.save();
        let code = ended?;
        saved.map(|()| code)
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<ExitCode> {
        let mut pace = Pace::new(&self.card);
        let mut saved = Instant::now();
        loop {
            let ran = self.card.run(SLICE);
            self.console.write(&self.card.board.take_console())?;
            if let Ran::Finished(finish) = ran {
                return Ok(finished(finish));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(ExitCode::SUCCESS);
            }
            let wait = pace.wait(&self.card);
            self.server.poll(&mut self.card, wait);
            if saved.elapsed() >= SAVE_EVERY {
                self.save()?;
                saved = Instant::now();
            }
        }
    }

    fn save(&mut self) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.save(&mut self.card))
    }
}

fn finished(finish: Finish) -> ExitCode {
    match finish {
        Finish::Pass => ExitCode::SUCCESS,
        Finish::Fail(code) => {
            eprintln!("dxpu-sim-card: the firmware failed with code {code}");
            ExitCode::from(3)
        }
    }
}

/// The card's time against the clock on the wall, which it never is ahead of for long.
struct Pace {
    began: Instant,
    /// The card's time then.
    nanos: u64,
}

impl Pace {
    fn new(card: &Card) -> Self {
        Self { began: Instant::now(), nanos: card.board.nanos() }
    }

    /// How long the card waits now.
    fn wait(&mut self, card: &Card) -> Duration {
        let passed = self.began.elapsed();
        let lived = Duration::from_nanos(card.board.nanos() - self.nanos);
        if passed > lived + FARTHEST_BEHIND {
            *self = Self::new(card);
        }
        let ahead = lived.saturating_sub(passed);
        // Shorter waits cost more than they are worth.
        if ahead < Duration::from_nanos(20 * SLICE * TICK_NANOS / 2) {
            Duration::ZERO
        } else {
            ahead.min(LONGEST_WAIT)
        }
    }
}
