//! What the numbers of a profile may be.

use super::{Cable, Dress, Fabric, FaultKind, Kind, Profile, Shares, Time, Trouble, Work};
use crate::host::FUNCTIONS;
use crate::host::driver::DRIVE_PATIENCE;
use anyhow::{Context, Result, ensure};
use proxy_core::limits::{MAX_FRAME, MAX_PATHS, MAX_PEERS, MAX_PORTS, MAX_SLOTS, MIN_FRAME};
use std::ops::RangeInclusive;

/// A chance in a million.
const PPM: RangeInclusive<u64> = 0..=1_000_000;
/// A day of virtual time.
const MS: RangeInclusive<u64> = 0..=86_400_000;
const US: RangeInclusive<u64> = 0..=86_400_000_000;
/// Things that are made anew for every run.
const MANY: RangeInclusive<u64> = 0..=1_000_000;

impl Profile {
    /// Whether a run can be made of it.
    ///
    /// # Errors
    ///
    /// Says which key cannot have its value, and which values it can have.
    pub(super) fn check(&self) -> Result<()> {
        fabric(&self.fabric).context("in [fabric]")?;
        trouble(&self.always).context("in [always]")?;
        work(&self.work).context("in [work]")?;
        // A drive refuses what is poisoned, as it should.
        ensure!(
            self.fabric.drives == 0 || self.work.dress == Dress::default(),
            "in [work.dress]: nothing where there are drives"
        );
        time(&self.time).context("in [time]")?;
        for (number, fault) in self.faults.iter().enumerate() {
            let FaultKind { kind, .. } = fault;
            // A drive does what it reads, and a flush says what it is not sure of.
            let lies = matches!(kind, Kind::RootTwice | Kind::RootWrong);
            let believes = self.fabric.drives > 0 || self.work.dma_flushes > 0;
            ensure!(
                !(lies && believes),
                "[[fault]] {} ({kind:?}): nothing where there are drives or `dma_flushes`",
                number + 1
            );
            // Only then does a driver give up what it asked of one.
            let silent = matches!(kind, Kind::DeviceHangs | Kind::DeviceStuck | Kind::DeviceLate);
            let patience = DRIVE_PATIENCE.as_millis() as u64;
            ensure!(
                !silent || self.fabric.drives == 0 || self.time.settle_ms > patience,
                "[[fault]] {} ({kind:?}): where there are drives, `settle_ms` has to be above {patience}",
                number + 1
            );
            check_fault(fault, self.fabric.manager)
                .with_context(|| format!("in [[fault]] {} ({kind:?})", number + 1))?;
        }
        Ok(())
    }
}

fn fabric(fabric: &Fabric) -> Result<()> {
    let &Fabric { hosts, boxes, slots, .. } = fabric;
    within("hosts", hosts, 1..=MAX_PEERS as u64)?;
    within("boxes", boxes, 1..=MAX_PEERS as u64)?;
    within("slots", slots, 1..=MAX_SLOTS as u64)?;
    within("drives", fabric.drives, 0..=slots as u64)?;
    within("spare", fabric.spare, 0..=(boxes * slots - 1) as u64)?;
    within("functions", fabric.functions, 1..=FUNCTIONS as u64)?;
    pair("ready_ms", fabric.ready_ms, 0..=500)?;
    fabric.hold_ms.iter().try_for_each(|hold| within("hold_ms", *hold, 1..=10_000))?;
    within("paths", fabric.paths, 1..=MAX_PATHS as u64)?;
    within("tiers", fabric.tiers, 1..=2)?;
    within("frame", fabric.frame, MIN_FRAME as u64..=MAX_FRAME as u64)?;
    within("shared_buffers", fabric.shared_buffers, 0..=8192)?;
    pair("control_us", fabric.control_us, US)?;
    let all = boxes * slots;
    let ports = if fabric.roams { all } else { all.div_ceil(hosts) };
    ensure!(ports <= MAX_PORTS, "a host would need {ports} ports; there are {MAX_PORTS}");
    fabric.shares.as_ref().map_or(Ok(()), shares).context("in [fabric.shares]")?;
    cable(&fabric.cable, fabric.frame).context("in [fabric.cable]")
}

fn shares(shares: &Shares) -> Result<()> {
    pair("weights", shares.weights, 0..=255)?;
    within("limited_ppm", u64::from(shares.limited_ppm), PPM)?;
    within("guaranteed_ppm", u64::from(shares.guaranteed_ppm), PPM)?;
    // With less, a driver's work alone takes longer than a request may.
    pair("limit_mbps", shares.limit_mbps, 4..=1_000_000)?;
    pair("guarantee_mbps", shares.guarantee_mbps, 1..=1_000_000)
}

fn cable(cable: &Cable, frame: usize) -> Result<()> {
    within("rate_mbps", cable.rate_mbps, 1..=10_000_000)?;
    within("delay_ns", cable.delay_ns, 0..=1_000_000_000)?;
    within("queue_kb", cable.queue_kb, MANY)?;
    within("mark_kb", cable.mark_kb, MANY)?;
    // The cables take the proxies' frames.
    within("mtu", cable.mtu, frame as u64..=MAX_FRAME as u64)
}

fn trouble(trouble: &Trouble) -> Result<()> {
    let chances = [
        ("loss_ppm", trouble.loss_ppm),
        ("burst_ppm", trouble.burst_ppm),
        ("burst_end_ppm", trouble.burst_end_ppm),
        ("twice_ppm", trouble.twice_ppm),
        ("late_ppm", trouble.late_ppm),
        ("escapes_ppm", trouble.escapes_ppm),
        ("lies_ppm", trouble.lies_ppm),
        ("dies_ppm", trouble.dies_ppm),
    ];
    for (key, chance) in chances {
        within(key, u64::from(chance), PPM)?;
    }
    within("late_us", trouble.late_us, US)?;
    within("dies_us", trouble.dies_us, US)?;
    within("bit_errors_e12", trouble.bit_errors_e12, 0..=1_000_000_000_000)
}

fn work(work: &Work) -> Result<()> {
    pair("bursts", work.bursts, MANY)?;
    pair("operations", work.operations, MANY)?;
    pair("blocks", work.blocks, 1..=1 << 16)?;
    pair("bytes", work.bytes, 1..=4096)?;
    if work.payload != 0 {
        within("payload", work.payload as u64, 128..=4096)?;
        ensure!(
            !work.has_peers() || work.payload >= 256,
            "payload: devices that ask each other have 256 or more"
        );
        ensure!(work.payload.is_power_of_two(), "payload: a power of two");
    }
    let dress = [
        ("classes_ppm", work.dress.classes_ppm),
        ("no_snoop_ppm", work.dress.no_snoop_ppm),
        ("hints_ppm", work.dress.hints_ppm),
        ("prefixes_ppm", work.dress.prefixes_ppm),
        ("digests_ppm", work.dress.digests_ppm),
        ("poison_ppm", work.dress.poison_ppm),
    ];
    for (key, chance) in dress {
        within(key, u64::from(chance), PPM).context("in [work.dress]")?;
    }
    within("stalls_ppm", u64::from(work.stalls_ppm), PPM)?;
    within("stall_us", work.stall_us, US)?;
    within("waits_ppm", u64::from(work.waits_ppm), PPM)
}

fn time(time: &Time) -> Result<()> {
    within("busy_ms", time.busy_ms, 1..=*MS.end())?;
    within("settle_ms", time.settle_ms, 1..=*MS.end())?;
    within("crosses_ms", time.crosses_ms, MS)?;
    within("stands_ms", time.stands_ms, MS)?;
    within("blink_ms", time.blink_ms, MS)
}

fn check_fault(fault: &FaultKind, manager: bool) -> Result<()> {
    let own = match fault.kind {
        Kind::PathsChange => Some(false),
        Kind::Replace
        | Kind::Drain
        | Kind::CallBack
        | Kind::TakeBack
        | Kind::Extend
        | Kind::ClockJump
        | Kind::ManagerCrash
        | Kind::ManagerTakeover => Some(true),
        _ => None,
    };
    ensure!(
        own.is_none_or(|own| own == manager),
        "it is for fabrics with `manager = {}` only",
        own.unwrap_or_default()
    );
    pair("count", fault.count, MANY)?;
    pair("for_ms", fault.for_ms, MS)?;
    pair("late_ms", fault.late_ms, MS)?;
    if fault.kind == Kind::MtuShrink {
        within("mtu", fault.mtu, 1..=MAX_FRAME as u64)?;
    }
    trouble(&fault.trouble).context("in `trouble`")
}

fn within(key: &str, value: impl TryInto<u64>, allowed: RangeInclusive<u64>) -> Result<()> {
    let value = value.try_into().unwrap_or(u64::MAX);
    let (low, high) = (allowed.start(), allowed.end());
    ensure!(allowed.contains(&value), "`{key}` is {value}; it can be {low} to {high}");
    Ok(())
}

/// From and to.
fn pair(key: &str, [from, to]: [u64; 2], allowed: RangeInclusive<u64>) -> Result<()> {
    ensure!(from <= to, "`{key}` is from {from} to {to}; the first cannot be the larger");
    within(key, from, allowed.clone())?;
    within(key, to, allowed)
}

#[cfg(test)]
mod tests {
    use crate::profile::Profile;

    /// What is said of the profile storm with something else in it.
    fn refused(from: &str, to: &str) -> String {
        let (_, storm) = crate::profile::BUILT_IN.iter().find(|p| p.0 == "storm").unwrap();
        assert!(storm.contains(from), "{from}");
        format!("{:#}", Profile::parse(&storm.replacen(from, to, 1)).unwrap_err())
    }

    #[test]
    fn a_number_out_of_its_range_is_named_with_the_range() {
        for (from, to, key, range) in [
            ("hosts = 3", "hosts = 0", "in [fabric]: `hosts` is 0", "1 to"),
            ("paths = 2", "paths = 9", "`paths` is 9", "1 to 8"),
            ("rate_mbps = 10000", "rate_mbps = 0", "[fabric.cable]: `rate_mbps` is 0", "1 to"),
            ("loss_ppm = 2000", "loss_ppm = 2000000", "in [always]: `loss_ppm`", "0 to 1000000"),
            ("bursts = [20, 50]", "bursts = [50, 20]", "`bursts` is from 50 to 20", "larger"),
            ("busy_ms = 3000", "busy_ms = 0", "in [time]: `busy_ms` is 0", "1 to"),
            ("for_ms = [1, 100]", "for_ms = [2, 1]", "in [[fault]] 1 (Storm): `for_ms`", "larger"),
            ("lies_ppm = 20000", "lies_ppm = 2000000", "[[fault]] 2 (Storm): in `trouble`", "0 to"),
            ("mtu = 1500", "mtu = 0", "(MtuShrink): `mtu` is 0", "1 to 9"),
        ] {
            let said = refused(from, to);
            assert!(said.contains(key) && said.contains(range), "{to}: {said}");
        }
    }

    #[test]
    fn what_is_no_such_number_is_named_with_its_line() {
        for value in ["-1", "nan", "0.5", "\"many\""] {
            let said = refused("loss_ppm = 2000", &format!("loss_ppm = {value}"));
            assert!(said.contains("loss_ppm") && said.contains("u32"), "{value}: {said}");
        }
    }
}
