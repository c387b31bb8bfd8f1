//! The project's checks, and what runs the demo and the benchmarks: `cargo xtask help`.
//!
//! `./dx` is the door to this for people: it first sees to Rust and the system's packages.

mod bare_metal;
mod beside;
mod card;
mod checks;
mod conformance;
mod counts;
mod cuda_clients;
mod cuda_hooks;
mod debian;
mod dependencies;
mod firmware;
mod flash_algorithm;
mod fuzz;
mod judges;
mod python;
mod regs;
mod report;
mod rest;
mod sections;
mod simulator;
mod stack;
mod test_output;
mod tests_run;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use beside::{Share, beside};
use report::Report;

/// The project's checks, and what runs the demo and the benchmarks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that has to hold before a change lands: all checks below, then all tests.
    Ci,
    /// The layout of the source (cargo fmt --check).
    Fmt,
    /// Clippy over everything, warnings denied.
    Clippy,
    /// The documentation builds without warnings; missing documentation is an error.
    Docs,
    /// Which crate depends on which, against the table in this program.
    Deps,
    /// The libraries of a card for bare-metal RISC-V (riscv32imac), and the size of their code.
    Riscv,
    /// Builds the emulated card's boot loader and firmware images, which tests run where QEMU is, and
    /// those of the other boards.
    Firmware,
    /// How deep the stack of each firmware and boot loader can get, from its machine code; build
    /// that first.
    Stack,
    /// The core with a card's limits: its tests and the simulator's.
    CardLimits {
        /// Also a thousand seeds of each profile, and a simulated day.
        #[arg(long)]
        long: bool,
    },
    /// Makes what is made from the card's register map, hw/regs/card.rdl, anew.
    Regs {
        /// Only say whether it is up to date, and compare it with another generator's.
        #[arg(long)]
        check: bool,
    },
    /// Makes the CUDA shim's table of hooked functions anew, from NVIDIA's headers.
    CudaHooks {
        /// Only say whether it is up to date and complete.
        #[arg(long, conflicts_with = "newest")]
        check: bool,
        /// Only say what the newest CUDA has that the table's headers have not.
        #[arg(long)]
        newest: bool,
    },
    /// Installs what tests of CUDA programs run and compare with: Python packages, NVIDIA's driver.
    CudaClients,
    /// Builds the flash algorithms into the board files of dxpu-flash.
    FlashAlgorithm {
        /// Only say whether they are up to date.
        #[arg(long)]
        check: bool,
    },
    /// The tests, with a count of those that passed, failed and were skipped.
    Test {
        /// Also the long set: the tests that are marked `ignore`, an hour of load through cards, and a
        /// card's limits for a simulated day.
        #[arg(long)]
        long: bool,
        /// What `cargo test` gets instead of --workspace, such as: -p proxy-net
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The host proxy judged by a root complex that is not ours: cocotbext-pcie's, in a simulator.
    Judges,
    /// The manager's REST API against requests that schemathesis makes up from its description.
    Rest,
    /// The manager's Debian package, which needs cargo-deb, and its installation into a clean root.
    Deb {
        /// Of the release build; without it of the usual one, to try the packaging.
        #[arg(long)]
        release: bool,
    },
    /// The conformance kit of the wire, against itself and against both daemons.
    Conformance,
    /// The fuzzer (nightly Rust and cargo-fuzz) over the targets of tests/fuzz.
    Fuzz {
        /// Some seconds of each target, as `ci` does: with any Rust and a C++ compiler.
        #[arg(long, conflicts_with_all = ["targets", "minutes", "keep"])]
        smoke: bool,
        /// Which targets; all of them, one after the other, when none is named.
        targets: Vec<String>,
        /// How long each of them runs.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Add the inputs that reach something new to the corpora in the tree.
        #[arg(long)]
        keep: bool,
    },
    /// The benchmarks, each beside its floor. `bench fabric` is the whole path's, `bench pool` the
    /// manager's with thousands of proxies.
    Bench {
        /// `fabric` and what `dxpu-bench` gets, `pool` and what `dxpu-pool-scale` gets, or what
        /// `cargo bench` gets instead of --workspace, such as: -p tlp-codec
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Instructions of the hot paths, counted and compared with those in the tree.
    Counts {
        /// Write what was counted to the tree instead.
        #[arg(long)]
        record: bool,
    },
    /// The simulator of a whole fabric: `cargo xtask sim --help` says what it takes.
    #[command(disable_help_flag = true)]
    Sim {
        /// What `dxpu-sim` gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A simulated card, flashed as one at a bench is, and its log, until Ctrl-C.
    Card(card::Options),
    /// Builds the daemons and boots Linux as a host: `./dx vm --help` says what it takes.
    #[command(disable_help_flag = true)]
    Vm {
        /// What `dxpu-vm run` gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// All tests with an unmodified Linux as the host; those of `test` are some of them.
    VmTests {
        /// Only tests with this in their name.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Builds the daemons and runs the demo: `./dx demo --help` says what it takes.
    #[command(disable_help_flag = true)]
    Demo {
        /// What the demo gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let mut report = Report::new();
    let _all_passed = match Cli::parse().command {
        Command::Ci => {
            report.step("source layout", checks::fmt);
            report.step("dependency direction", dependencies::check);
            report.step("card firmware", firmware::build);
            report.step("card's stack", stack::check);
            report.step("register map", regs::check);
            report.step("flash algorithms", flash_algorithm::check);
            report.step("CUDA hook table", cuda_hooks::check);
            report.step("CUDA programs", cuda_clients::install);
            report.step("build of the tests", || tests_run::build(&[]))
                // First what needs no lock of cargo's for long: the tests are to have begun then.
                && beside(
                    &mut report,
                    Share::Rest,
                    vec![
                        ("simulator: seeds", simulator::seeds),
                        ("bare-metal riscv32imac", bare_metal::build),
                        ("clippy", checks::clippy),
                        ("documentation", checks::docs),
                    ],
                    |report| report.step("tests", || tests_run::run(&[], false)),
                )
                && report.step("independent judge", judges::run)
                && report.step("REST API", rest::run)
                && report.step("Debian package", || debian::make(false))
                // The conformance kit mostly waits for time to pass.
                && beside(
                    &mut report,
                    Share::Even,
                    vec![("conformance kit", conformance::run)],
                    |report| {
                        report.step("instruction counts", || counts::run(false))
                            && report.step("fuzzer, a short run", fuzz::smoke)
                    },
                )
                && report.step("limits of a card", || simulator::card_limits(false))
                && report.step("simulator: planted mistakes", simulator::canaries)
        }
        Command::Fmt => report.step("source layout", checks::fmt),
        Command::Clippy => report.step("clippy", checks::clippy),
        Command::Docs => report.step("documentation", checks::docs),
        Command::Deps => report.step("dependency direction", dependencies::check),
        Command::Riscv => report.step("bare-metal riscv32imac", bare_metal::build),
        Command::Firmware => report.step("card firmware", firmware::build),
        Command::Stack => report.step("card's stack", stack::check),
        Command::CardLimits { long } => {
            report.step("limits of a card", || simulator::card_limits(long))
        }
        Command::Regs { check: true } => report.step("register map", regs::check),
        Command::Regs { check: false } => report.step("register map", regs::make),
        Command::CudaHooks { newest: true, .. } => report.step("newest CUDA", cuda_hooks::newest),
        Command::CudaHooks { check: true, .. } => report.step("CUDA hook table", cuda_hooks::check),
        Command::CudaHooks { .. } => report.step("CUDA hook table", cuda_hooks::make),
        Command::CudaClients => report.step("CUDA programs", cuda_clients::install),
        Command::FlashAlgorithm { check: true } => {
            report.step("flash algorithms", flash_algorithm::check)
        }
        Command::FlashAlgorithm { check: false } => {
            report.step("flash algorithms", flash_algorithm::make)
        }
        Command::Counts { record } => report.step("instruction counts", || counts::run(record)),
        Command::Deb { release } => report.step("Debian package", || debian::make(release)),
        Command::Rest => report.step("REST API", rest::run),
        Command::Judges => report.step("independent judge", judges::run),
        Command::Conformance => report.step("conformance kit", conformance::run),
        Command::Test { long: true, arguments } if arguments.is_empty() => {
            report.step("card firmware", firmware::build)
                && tests(&mut report, &arguments, true)
                && report.step("simulator: a day", simulator::day)
                && report.step("limits of a card", || simulator::card_limits(true))
        }
        Command::Test { long, arguments } => tests(&mut report, &arguments, long),
        Command::Fuzz { smoke: true, .. } => report.step("fuzzer, a short run", fuzz::smoke),
        Command::Fuzz { targets, minutes, keep, .. } => {
            let wanted = fuzz::Wanted { targets: &targets, minutes, keep };
            report.step("fuzzer", || fuzz::run(&wanted))
        }
        Command::Bench { arguments } => return plain(checks::bench(&arguments)),
        Command::Sim { arguments } => return plain(checks::sim(&arguments)),
        Command::Demo { arguments } => return plain(checks::demo(&arguments)),
        Command::Card(options) => return plain(card::card(&options)),
        Command::Vm { arguments } => return plain(checks::vm(&arguments)),
        Command::VmTests { filter } => tests(&mut report, &vm_tests(filter), true),
    };
    report.finish()
}

fn tests(report: &mut Report, arguments: &[String], long: bool) -> bool {
    report.step("build of the tests", || tests_run::build(arguments))
        && report.step("tests", || tests_run::run(arguments, long))
}

/// What `cargo test` gets for the tests with guests.
fn vm_tests(filter: String) -> Vec<String> {
    let mut arguments = ["--package", "vm"].map(str::to_owned).to_vec();
    if !filter.is_empty() {
        arguments.push(filter);
    }
    arguments
}

/// Ends as the program that was run did.
fn plain(ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
