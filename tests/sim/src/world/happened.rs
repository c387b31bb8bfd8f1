//! What happened in a run, counted.

use super::World;
use super::hosts::HostNode;
use crate::device::Mark;
#[cfg(test)]
use crate::host::FUNCTIONS;
use crate::lender::Lender;
use crate::run::Frames;
use proxy_core::boxes::SlotSignal;
use proxy_core::host::HostRole;
#[cfg(test)]
use proxy_core::time::Instant;
use std::collections::BTreeMap;

/// What faults and requests came to, by its name, counted where it is seen.
#[derive(Debug, Default)]
pub(super) struct Did(BTreeMap<&'static str, u64>);

impl Did {
    pub(super) fn once(&mut self, what: &'static str) {
        self.times(what, 1);
    }

    pub(super) fn times(&mut self, what: &'static str, times: usize) {
        *self.0.entry(what).or_default() += times as u64;
    }

    /// A proxy took something of a device.
    pub(super) fn said(&mut self, mark: &Mark) {
        match mark {
            Mark::TooMany => self.once("answers too many of devices"),
            Mark::Lie { .. } => self.once("wrong answers of devices"),
            Mark::Stray => self.once("writes of devices astray"),
            Mark::Nobodys => self.once("TLPs of devices that may come out nowhere"),
            _ => {}
        }
    }

    /// A proxy gave a device a signal.
    pub(super) fn signalled(&mut self, signal: SlotSignal) {
        match signal {
            SlotSignal::HotReset => self.once("hot resets of devices"),
            SlotSignal::Perst { asserted: true } => self.once("devices that were held in PERST#"),
            SlotSignal::Perst { asserted: false } => {}
        }
    }

    /// A proxy died.
    pub(super) fn died(&mut self, is_host: bool, with_tables: bool) {
        self.once(match (is_host, with_tables) {
            (true, false) => "hosts' proxies that died",
            (true, true) => "hosts' proxies that died, but for their tables",
            (false, false) => "boxes' proxies that died",
            (false, true) => "boxes' proxies that died, but for their tables",
        });
    }
}

impl World {
    /// TLPs that were given out at the other end of the fabric.
    pub(crate) fn delivered(&self) -> u64 {
        self.bindings.delivered()
    }

    /// Operations of drivers that ended well.
    pub(crate) fn done(&self) -> u64 {
        self.hosts.iter().map(|host| host.os.done()).sum()
    }

    /// When the schedule began.
    #[cfg(test)]
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began
    }

    /// Operations that ended well, for each port of a host.
    #[cfg(test)]
    pub(crate) fn done_by_port(&self, host: usize) -> Vec<u64> {
        let host = &self.hosts[host];
        let done = |port| host.os.driver(port).map_or(0, |driver| driver.done());
        let all = |first: usize| (first..first + FUNCTIONS).map(done).sum();
        (0..host.ports.len()).step_by(FUNCTIONS).map(all).collect()
    }

    /// Frames that were sent, lost, and marked.
    pub(crate) fn frames(&self) -> Frames {
        Frames { sent: self.network.sent, lost: self.network.lost, marked: self.network.marked }
    }

    /// How often what a profile may be for happened, by its name.
    pub(crate) fn what_happened(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.wire.counts;
        let manager = match &self.lender {
            Lender::Manager(manager) => manager.served(),
            Lender::Director(_) => [0; 6],
        };
        let crashes = match &self.lender {
            Lender::Manager(manager) => manager.crashes,
            Lender::Director(_) => 0,
        };
        let all = [
            ("devices replaced", manager[0]),
            ("places emptied", manager[1]),
            ("operations called back", manager[2]),
            ("devices taken back", manager[3]),
            ("leases over", manager[4]),
            ("leases extended", manager[5]),
            ("deaths of managers", crashes),
            ("frames that were marked", self.network.marked),
            ("limits reached", counts.limited),
            ("TLPs with a choice of paths", counts.chosen),
            ("TLPs beside their paths", counts.astray),
            ("changes of the number of paths", counts.changes),
            ("TLPs between devices", self.bindings.aside),
            ("TLPs between devices by a root complex", self.bindings.by_root),
            ("transfers between devices that were right", self.peers_right()),
            ("operations of further functions", self.done_by_others()),
            ("TLPs past what a root complex did not take", self.passed_at_roots()),
            ("late answers of root complexes", self.misdeeds(0)),
            ("lies of root complexes", self.misdeeds(1)),
            ("TLPs given up for devices that take nothing", self.given_up()),
            ("turns of wires", self.hosts.iter().map(|host| host.wires.turns).sum()),
            ("frames lost where the other direction went on", self.network.lost_one_way),
            ("requests to devices behind closed windows", self.refused(0)),
            ("reads and atomics of devices that their port refused", self.refused(1)),
            ("requests to functions that do not decode", self.unheard(0)),
            ("requests that functions held back", self.unheard(1)),
            ("transfers that were lost", self.hosts.iter().map(|host| host.os.lost()).sum()),
        ];
        let all = all.into_iter().chain(self.came.list()).chain(self.changes());
        let all = all.chain(self.network.happened()).chain(self.of_devices());
        all.chain(self.did.0.iter().map(|(what, count)| (*what, *count))).collect()
    }

    /// TLPs that ports refused: those of root complexes, and of devices.
    fn refused(&self, way: usize) -> u64 {
        self.hosts.iter().map(|host| host.gates.counts[way]).sum()
    }

    /// What functions did not hear, and what they held back.
    fn unheard(&self, what: usize) -> u64 {
        let slots = self.boxes.iter().flat_map(|node| &node.slots);
        slots.map(|slot| slot.device.unheard()[what]).sum()
    }

    /// What devices did that they should not, and root complexes saw of it.
    fn of_devices(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let slots = self.boxes.iter().flat_map(|node| &node.slots);
        let [late, hung, twice] = slots
            .map(|slot| slot.device.misdeeds())
            .fold([0; 3], |all, one| std::array::from_fn(|what| all[what] + one[what]));
        let sum = |count: fn(&HostNode) -> u64| self.hosts.iter().map(count).sum();
        [
            ("late answers of devices", late),
            ("requests to devices that hung", hung),
            ("answers that devices gave twice", twice),
            ("writes of floods that came to a root complex", sum(|host| host.os.flooded)),
            ("TLPs astray that came to a root complex", sum(|host| host.os.strays)),
        ]
        .into_iter()
    }

    /// Settings that were changed under work, of functions and of ports.
    fn changes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        const NAMES: [[&str; 4]; 2] = [
            [
                "functions without bus master",
                "functions without memory space",
                "functions in D3hot",
                "functions whose registers were moved",
            ],
            [
                "ports without bus master",
                "ports without memory space",
                "ports in D3hot",
                "ports whose registers were moved",
            ],
        ];
        let count = |whose: usize, what: usize| {
            self.hosts.iter().map(|host| host.os.changed[whose][what]).sum()
        };
        let all = (0..2).flat_map(|whose| (0..4).map(move |what| (whose, what)));
        all.map(move |(whose, what)| (NAMES[whose][what], count(whose, what)))
    }

    /// Operations of devices' further functions, by the drivers that are there.
    fn done_by_others(&self) -> u64 {
        let others = |host: &HostNode| -> u64 {
            let ports = (0..host.ports.len()).filter(|port| *port != crate::host::first(*port));
            ports.filter_map(|port| host.os.driver(port)).map(|driver| driver.done()).sum()
        };
        self.hosts.iter().map(others).sum()
    }

    /// TLPs that root complexes took while they took none of another class.
    fn passed_at_roots(&self) -> u64 {
        self.hosts.iter().map(|host| host.room.passed).sum()
    }

    /// Answers of root complexes that were late, or lies.
    fn misdeeds(&self, kind: usize) -> u64 {
        self.hosts.iter().map(|host| host.root.misdeeds[kind]).sum()
    }

    /// TLPs that the hosts' proxies that are there have given up.
    fn given_up(&self) -> u64 {
        self.hosts.iter().flat_map(|host| &host.role).map(HostRole::given_up).sum()
    }

    /// Transfers between devices of which what they left was looked at.
    fn peers_right(&self) -> u64 {
        self.hosts.iter().map(|host| host.os.peers_right()).sum()
    }

    /// Bindings that there were.
    pub(crate) fn binding_count(&self) -> usize {
        self.bindings.all().len()
    }
}
