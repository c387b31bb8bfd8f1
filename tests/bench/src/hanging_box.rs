//! A box proxy whose first device can be made to hang, and to go on: SIGUSR1 changes it. All of it
//! but that device is the box proxy's own code.

use anyhow::{Context, Result, anyhow};
use box_proxy::daemon::{Seated, serve};
use device_models::accelerator::{Accelerator, Config};
use device_models::endpoint::Endpoint;
use device_models::{Classes, Device, ResetKind};
use proxy_core::control::Name;
use proxy_daemon::config::Said;
use proxy_daemon::stop::Stop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tlp_codec::ids::SlotId;
use tlp_codec::tlp::Class;

/// What it is told.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    proxy: Said,
    /// How many accelerators it has.
    #[arg(long)]
    accelerators: u8,
}

/// Takes nothing and sends nothing as long as it is told to.
struct Hanging {
    device: Endpoint<Accelerator>,
    hangs: Arc<AtomicBool>,
}

impl Hanging {
    fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }
}

impl Device for Hanging {
    fn handle_tlp(&mut self, now: Duration, tlp: &[u8]) {
        self.device.handle_tlp(now, tlp);
    }

    fn can_take(&self, class: Class) -> bool {
        !self.hangs() && self.device.can_take(class)
    }

    fn poll_tlp_of(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize> {
        if self.hangs() { None } else { self.device.poll_tlp_of(now, classes, buf) }
    }

    fn handle_reset(&mut self, now: Duration, kind: ResetKind) {
        self.device.handle_reset(now, kind);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.hangs() { None } else { self.device.poll_timeout() }
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.device.handle_timeout(now);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.device.counters()
    }
}

/// Runs until it is told to stop.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let hangs = Arc::new(AtomicBool::new(false));
    let toggled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&toggled))?;
    let flag = Arc::clone(&hangs);
    std::thread::Builder::new().name("hangs".into()).spawn(move || {
        loop {
            if toggled.swap(false, Ordering::Relaxed) {
                flag.fetch_xor(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })?;
    let common = arguments.proxy.check().map_err(|error| anyhow!(error))?;
    let stop = Stop::on_signals().context("signals")?;
    let seated = |number: u8| {
        let config = Config { serial: number.into(), memory_size: 1 << 20, ..Config::default() };
        let device = Accelerator::device(config).map_err(|error| error.to_string())?;
        let device: Box<dyn Device> = if number == 1 {
            Box::new(Hanging { device, hangs: Arc::clone(&hangs) })
        } else {
            Box::new(device)
        };
        let slot = SlotId::new(number).map_err(|error| error.to_string())?;
        let model = Name::try_from("accelerator").expect("a short name");
        Ok(Seated { slot, device, model })
    };
    serve(&common, &stop, || (1..=arguments.accelerators).map(seated).collect())
        .map_err(|error| anyhow!(error))
}
