use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::loss::Loss;
use crate::network::{BOX, HOST, Network, PATHS};
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::{Result, anyhow, bail, ensure};
use device_models::accelerator::regs::{COUNTER, COUNTER_ADD};
use std::time::{Duration, Instant};

/// Longest time that requests may stand still, in milliseconds.
const TARGET: f64 = 10.0;
/// Reads underway: at about 5 µs each, well over the time until the path dies.
const READS: &str = "100000";
/// Bytes of a job that a path dies in: some 400 ms of it.
const JOB: &str = "268435456";
/// How long one register write comes after the other, each of which adds one: well over the time until a
/// path dies.
const ADDING: Duration = Duration::from_millis(600);
/// So many of them right behind each other, that many are under way when it does.
const AT_ONCE: u32 = 1000;
/// When the path dies, after the reads began, and how long it is dead.
const BEFORE: Duration = Duration::from_millis(150);
/// How long frames are counted before it, to know which path carries them.
const COUNTED: Duration = Duration::from_millis(5);
/// How often a command is begun anew that was over before the path died: a busy computer gets to that late.
const TRIES: usize = 8;
/// How long a path takes to be found again.
const REST: Duration = Duration::from_millis(1500);

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    if let Err(error) = cut(bench, 1) {
        results.skipped.push(format!("the kernel loses no frames for us ({error:#})"));
        return Ok(());
    }
    let layout = Layout { paths: PATHS, ..Layout::of(&["1=accelerator,memory=1M"]) };
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let device = system.lend("accelerator", 1)?.remove(0);
    let latency = || system.host(&["latency", &device.name, "--reads", READS]);
    let job = || system.host(&["bandwidth", &device.name, "--only", "write", "--bytes", JOB]);
    let (mut still, mut calm, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let (mut shares, mut once) = (Vec::new(), Vec::new());
    for _ in 0..bench.repeats {
        calm.push(number(&latency()?, "/max_ns")? / 1e6);
        let (reads, share) = while_its_path_dies(bench, "the reads", latency)?;
        still.push(number(&reads, "/max_ns")? / 1e6);
        shares.push(share * 100.0);
        // Every byte is checked: one that is lost, wrong or late is an error.
        let (job, _) = while_its_path_dies(bench, "the job", job)?;
        whole.push(number(&job, "/device_to_host/bytes")? / 1e6);
        // A write of the same bytes that is done twice is not seen there, but here.
        let adds = || count_adds(&system, device.address);
        let ((added, counted), _) = while_its_path_dies(bench, "the adding", adds)?;
        ensure!(counted == added, "{added} writes that add one made a counter {counted}");
        once.push(counted);
    }
    results.figure("longest read, both paths alive", "ms", calm);
    results.aimed(
        "longest read when the path that carries the reads dies",
        "ms",
        still,
        Held::Worst,
        Aim::AtMost,
        TARGET,
    );
    results.figure("frames of the reads that were on that path", "%", shares);
    results.figure("DMA write while a path dies, every byte right", "MB", whole);
    results.figure("register writes while a path dies, each done once", "", once);
    Ok(())
}

/// A path that carries nothing, in neither direction, as long as this is alive.
fn cut(bench: &Bench, path: usize) -> Result<[Loss; 2]> {
    let all = Some(1);
    let near = Network::within(&bench.network.host, || Loss::attach(HOST[path], all))?;
    Ok([near, Network::within(&bench.network.boxes, || Loss::attach(BOX[path], all))?])
}

/// Adds one to a device's counter, again and again: how often, and what it has counted. Reading that clears
/// it.
fn count_adds(system: &System, registers: u64) -> Result<(f64, f64)> {
    let (add, counter) = (registers + COUNTER_ADD, registers + COUNTER);
    let (begun, mut added) = (Instant::now(), 0.0);
    while begun.elapsed() < ADDING {
        system.host(&["mmio-write", &add.to_string(), "1", "--times", &AT_ONCE.to_string()])?;
        added += f64::from(AT_ONCE);
    }
    let counted = system.host(&["mmio-read", &counter.to_string()])?;
    Ok((added, number(&counted, "/value")?))
}

/// What comes of work in the middle of which the path dies that carries most of its frames, and which
/// part of them that path carried.
fn while_its_path_dies<T: Send>(
    bench: &Bench,
    what: &str,
    work: impl Fn() -> Result<T> + Sync,
) -> Result<(T, f64)> {
    for _ in 0..TRIES {
        if let Some(done) = if_its_path_dies(bench, &work)? {
            return Ok(done);
        }
    }
    bail!("{what} ended before the path died, {TRIES} times")
}

/// The same; nothing when the work was over before.
fn if_its_path_dies<T: Send>(
    bench: &Bench,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<Option<(T, f64)>> {
    let (done, share, in_its_middle) = std::thread::scope(|scope| {
        let working = scope.spawn(work);
        std::thread::sleep(BEFORE);
        let (mut path, mut share) = (0, None);
        // A machine that is busy may not have begun.
        while share.is_none() && !working.is_finished() {
            let before = bench.network.carried()?;
            std::thread::sleep(COUNTED);
            let now = bench.network.carried()?;
            (path, share) = busiest(std::array::from_fn(|path| now[path] - before[path]));
        }
        let _dead = cut(bench, path)?;
        let in_its_middle = !working.is_finished();
        let done = working.join().map_err(|_| anyhow!("the work panicked"))??;
        Ok::<_, anyhow::Error>((done, share, in_its_middle))
    })?;
    std::thread::sleep(REST);
    if !in_its_middle {
        return Ok(None);
    }
    let share = share.ok_or_else(|| anyhow!("no path carried a frame"))?;
    Ok(Some((done, share)))
}

/// Which path carried most, and its part of all; none where nothing was carried.
fn busiest(carried: [u64; PATHS]) -> (usize, Option<f64>) {
    let (path, most) =
        carried.into_iter().enumerate().max_by_key(|&(_, count)| count).unwrap_or((0, 0));
    let all: u64 = carried.iter().sum();
    (path, (most > 0).then(|| most as f64 / all as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_with_most_frames_is_the_one_that_dies() {
        assert_eq!(busiest([30, 10]), (0, Some(0.75)));
        assert_eq!(busiest([0, 8]), (1, Some(1.0)));
        assert_eq!(busiest([0, 0]).1, None);
    }
}
