use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::process::number;
use crate::system::{Function, Layout, System};
use anyhow::Result;
use std::time::Duration;

/// Bindings in all.
const BINDINGS: usize = 16;
/// The throughput of the others that is aimed for while one hangs.
const TARGET: f64 = 0.95;
/// Register writes to the device that hangs: more than its binding has credit for waits.
const WRITES: usize = 100;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let slots = ["accelerator"; BINDINGS];
    let layout = Layout { hanging: true, ..Layout::of(&slots) };
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let devices = system.lend("accelerator", BINDINGS)?;
    let toggle = || {
        system.boxes.signal(libc::SIGUSR1);
        std::thread::sleep(Duration::from_millis(100));
    };
    toggle();
    let hung = find_hung(&system, &devices)?;
    toggle();
    let others = Others { system: &system, devices: &devices, hung: &hung };
    for (way, key) in [("write", "device_to_host"), ("read", "host_to_device")] {
        let bytes = bench.pick(16 << 20, 4 << 20_u64);
        let all = || others.throughput(way, key, bytes);
        let (mut well, mut one_hangs) = (Vec::new(), Vec::new());
        for _ in 0..bench.repeats {
            well.push(all()?);
            toggle();
            others.fill_hung()?;
            one_hangs.push(all()?);
            toggle();
        }
        let ratios = one_hangs.iter().zip(&well).map(|(hangs, well)| hangs / well);
        let name = format!("DMA {way} of {} devices at once, all well", BINDINGS - 1);
        results.figure(name, "MB/s", well.iter().map(|w| w / 1e6));
        let hangs = one_hangs.iter().map(|h| h / 1e6);
        results.figure(format!("DMA {way} while the sixteenth hangs"), "MB/s", hangs);
        let name = format!("throughput of the others, DMA {way}");
        let ratios: Vec<f64> = ratios.collect();
        results.aimed(name, "", ratios, Held::Median, Aim::AtLeast, TARGET);
    }
    Ok(())
}

/// The devices beside the one that hangs.
struct Others<'a> {
    system: &'a System,
    devices: &'a [Function],
    hung: &'a Function,
}

impl Others<'_> {
    /// Bytes a second of all of them at the same time: each wants what the link has.
    fn throughput(&self, way: &str, key: &str, bytes: u64) -> Result<f64> {
        let bytes = bytes.to_string();
        let mut words = vec!["bandwidth", "--only", way, "--bytes", &bytes];
        let names = self.devices.iter().map(|device| device.name.as_str());
        words.extend(names.filter(|name| *name != self.hung.name));
        number(&self.system.host(&words)?, &format!("/{key}/bytes_per_second"))
    }

    /// Writes to the one that hangs more than its binding has credit for.
    fn fill_hung(&self) -> Result<()> {
        let scratch = (self.hung.address + 0x18).to_string();
        for _ in 0..WRITES {
            self.system.host(&["mmio-write", &scratch, "1"])?;
        }
        Ok(())
    }
}

/// The device that does not answer: it is read until the proxy completes the request itself.
fn find_hung(system: &System, devices: &[Function]) -> Result<Function> {
    for device in devices {
        let answer = system.host(&["mmio-read", &device.address.to_string()]);
        let value = answer.ok().and_then(|value| value["value"].as_u64());
        if value.is_none_or(|value| value == u64::from(u32::MAX)) {
            return Ok(device.clone());
        }
    }
    anyhow::bail!("every device answers")
}
