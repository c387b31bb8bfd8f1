//! What is measured, each in a file of its own.

mod fail_over;
mod hung;
mod interrupts;
mod loss;
mod memory;
mod round_trip;
mod throughput;
mod transports;

use crate::figures::Results;
use crate::network::Network;
use anyhow::Result;
use std::path::PathBuf;

/// What every measure gets.
pub(crate) struct Bench {
    pub(crate) programs: PathBuf,
    pub(crate) network: Network,
    pub(crate) quick: bool,
    /// Turns of floor and measurement; the median of them is the result.
    pub(crate) repeats: usize,
}

impl Bench {
    /// One figure for a long run, another for a quick one.
    pub(crate) fn pick<T>(&self, long: T, quick: T) -> T {
        if self.quick { quick } else { long }
    }
}

/// A measure.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Bench, &mut Results) -> Result<()>,
}

/// All of them, in the order that they run in.
pub(crate) const MEASURES: &[Measure] = &[
    Measure {
        name: "round-trip",
        about: "a 4-byte register read through both daemons, beside a bare frame there and back",
        run: round_trip::run,
    },
    Measure {
        name: "throughput",
        about: "DMA in both directions by payload and tags, beside Equation 1 and bare frames",
        run: throughput::run,
    },
    Measure {
        name: "transports",
        about: "DMA in both directions by what carries the frames, beside bare frames",
        run: transports::run,
    },
    Measure {
        name: "interrupts",
        about: "interrupts in a second, each behind the data that it is for",
        run: interrupts::run,
    },
    Measure { name: "loss", about: "what lost frames cost", run: loss::run },
    Measure {
        name: "fail-over",
        about: "how long a device's requests stand still when one of two paths dies",
        run: fail_over::run,
    },
    Measure {
        name: "hung",
        about: "sixteen bindings into one host, of which one hangs",
        run: hung::run,
    },
    Measure {
        name: "memory",
        about: "resident memory of a box proxy with sixteen devices",
        run: memory::run,
    },
];
