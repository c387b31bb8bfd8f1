//! A virtual machine as the host: an adapter in it, behind a vfio-user socket.
//!
//! `vmd_adapter` is what the machine sees, `vfio_user_server` is how its accesses come here; both
//! are turned by the thread of what is [`Below`]: the data plane. `docs/vm.md` tells how a machine
//! gets the adapter.

mod below;
mod completions;
mod lane;
mod machine;

pub use below::Below;

use super::absence::Absence;
use super::lines::Lines;
use completions::Completions;
use lane::{Lane, Passed};
use machine::Machine;
use proxy_core::config_space::ResetKind;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::time::Instant;
use proxy_daemon::stop::Stop;
use proxy_net::Waiting;
use std::path::Path;
use std::time::Duration;
use tracing::warn;
use vfio_user_server::{Access, Device, Event, Irq, Server};
use vmd_adapter::{Adapter, Region, Token, VmdConfig};

/// Accesses, or TLPs in either direction, that one turn moves at most.
const BATCH: usize = 64;

/// Looks at the socket of a machine that waits for an answer are rare: one in so many.
const SELDOM: u32 = 16;

/// How long a client has to agree on a version; one that says nothing would keep others out.
const HELLO_BOUND: Duration = Duration::from_secs(30);

/// Regions of the adapter, by VFIO's number.
const REGIONS: [(usize, Region); 4] =
    [(0, Region::Configuration), (2, Region::Memory), (4, Region::Prefetchable), (7, Region::Own)];

/// An adapter at a socket, ready to run.
pub struct VmFront {
    server: Server,
    adapter: Adapter,
}

impl VmFront {
    /// Listens.
    ///
    /// # Errors
    ///
    /// A text that names the socket or the setting, and says what to do.
    pub fn open(socket: &Path, settings: &VmdConfig) -> Result<Self, String> {
        let adapter = Adapter::new(settings).map_err(|e| format!("vm: {e}"))?;
        let mut device = Device::default();
        for (index, region) in REGIONS {
            device.regions[index].size = settings.size(region);
            device.regions[index].access = Access::ReadWrite;
        }
        device.irqs[Irq::Msix.index()] = settings.vectors().into();
        let server = Server::listen(socket, device).map_err(|e| format!("vm: {e}"))?;
        Ok(Self { server, adapter })
    }

    /// Serves one machine after the other until told to stop.
    ///
    /// # Errors
    ///
    /// When what is below is broken for good.
    pub fn run<B: Below>(self, below: B, stop: &Stop) -> Result<(), String> {
        let mut turner = self.above(below);
        while !stop.requested() {
            turner.turn()?;
        }
        Ok(())
    }

    fn above<B>(self, below: B) -> Turner<B> {
        Turner {
            server: self.server,
            adapter: self.adapter,
            below,
            requests: Lane::of_requests(),
            turned: Lane::new(),
            completions: Completions::new(),
            up: Box::new([0; TLP_BUFFER]),
            connected: None,
            absence: Absence::default(),
            unlooked: 0,
            counts: Counts::default(),
            told: Told::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    given_up: u64,
    discarded: u64,
    failed: u64,
}

impl Counts {
    fn list(self) -> [(&'static str, u64); 3] {
        [
            ("vm: TLPs given up for lack of room", self.given_up),
            ("vm: TLPs for a machine that is not there", self.discarded),
            ("vm: DMA that the machine refused", self.failed),
        ]
    }
}

/// What the machine can cause as often as it likes, and is told in the log.
#[derive(Debug, Default)]
struct Told {
    connected: Lines,
    disconnected: Lines,
    resets: Lines,
    link_resets: Lines,
    given_up: Lines,
    /// TLPs given up when that was told last, in a line or not.
    given_up_count: u64,
}

struct Turner<B> {
    server: Server,
    adapter: Adapter,
    below: B,
    /// Requests of the machine.
    requests: Lane,
    /// What one device wants of another.
    turned: Lane,
    /// Completions for devices.
    completions: Completions,
    /// A TLP on its way up. It is not made for each turn: that would clear it each time.
    up: Box<[u8; TLP_BUFFER]>,
    /// Since when a client is there.
    connected: Option<Instant>,
    absence: Absence,
    /// Times that the socket was not looked at since it was.
    unlooked: u32,
    counts: Counts,
    told: Told,
}

impl<B: Below> Turner<B> {
    fn turn(&mut self) -> Result<(), String> {
        let mut busy = self.below.receive()?;
        for _ in 0..BATCH {
            // What the machine waits for goes up before anything else is looked for.
            let moved = self.move_up() | self.take_events() | self.move_down();
            busy |= moved;
            if !moved {
                break;
            }
        }
        let now = self.below.now();
        self.adapter.handle_timeout(now);
        self.after_access();
        self.send_silent_away(now);
        self.tell_given_up(now);
        // A machine, and not just someone at the socket.
        let present = self.server.is_negotiated();
        let settled = self.absence.lasts(now, present);
        if present || settled {
            self.below.set_root_complex(present);
        }
        if self.below.wants_counters() {
            let mut counters = self.adapter.counters().list();
            counters.extend(self.server.counters());
            counters.extend(self.counts.list());
            self.below.set_counters(counters);
        }
        busy |= self.below.transmit()?;
        let waits = self.server.waits_on();
        let waits: Vec<_> = waits.map(|(fd, read, write)| Waiting { fd, read, write }).collect();
        let again = self.server.waits_at_most().map(|wait| now + wait);
        let timer = self.adapter.poll_timeout().into_iter().chain(again).min();
        self.below.rest(busy, timer, &waits)
    }

    /// What the machine did. Whether there was anything.
    fn take_events(&mut self) -> bool {
        self.answer();
        if self.server.awaits_answer() && self.unlooked < SELDOM {
            self.unlooked += 1;
            return false;
        }
        self.unlooked = 0;
        let now = self.below.latest();
        let Some(event) = self.server.poll() else {
            if !self.adapter.is_busy() {
                self.requests.note_idle();
            }
            return false;
        };
        match event {
            Event::Read { region, offset, len } => {
                let region = Region::from_index(region).expect("the server knows the regions");
                self.below.note_read();
                self.adapter.handle_read(region, offset, len);
            }
            Event::Write { region, offset, data } => {
                let region = Region::from_index(region).expect("the server knows the regions");
                self.adapter.handle_write(region, offset, data);
            }
            Event::Reset => {
                self.told.resets.info(now, "the machine resets the adapter");
                self.reset();
                self.server.answer(Ok(&[]));
            }
            Event::DmaDone { token, result } => {
                self.counts.failed += u64::from(result.is_err());
                self.adapter.handle_memory(Token(token.get()), result.map_err(drop));
            }
            Event::Connected => {
                self.told.connected.info(now, "a machine connected");
                self.connected = Some(now);
            }
            Event::Disconnected(why) => {
                let line = format_args!("the machine disconnected: {why}");
                self.told.disconnected.info(now, line);
                // The protocol would have the device's state kept for the next client. Here a
                // machine that went is one that was switched off.
                self.connected = None;
                self.reset();
            }
        }
        self.after_access();
        true
    }

    /// Everything is as after power-on, for the machine and for what is below.
    fn reset(&mut self) {
        self.adapter.handle_reset();
        self.pass_reset_on();
    }

    fn pass_reset_on(&mut self) {
        let Some(kind) = self.adapter.poll_reset() else { return };
        self.requests.clear();
        self.turned.clear();
        self.completions.clear();
        self.below.handle_reset(kind);
        if kind == ResetKind::Hot {
            let now = self.below.latest();
            self.told.link_resets.info(now, "the machine's root port resets its link");
        } else {
            self.requests.begin_anew();
        }
    }

    /// An access may have enabled an interrupt.
    fn after_access(&mut self) {
        self.adapter.handle_guest(&mut Machine(&mut self.server));
        self.answer();
    }

    fn answer(&mut self) {
        // An access that the client does not wait for any more went with the adapter's reset.
        let (now, since) = (self.below.latest(), self.adapter.asks_since());
        let Some(data) = self.adapter.poll_answer() else { return };
        if let Some(since) = since {
            self.requests.note_answer(since, now);
        }
        // Before the machine hears: what it sends then has waited for nothing.
        if self.requests.has_waited(now) && !self.server.has_more() {
            self.requests.note_idle();
        }
        self.server.answer(Ok(data));
    }

    /// From the adapter to the switch. Whether there was anything.
    fn move_down(&mut self) -> bool {
        let now = self.below.latest();
        let Self { below, adapter, requests, turned, completions, counts, .. } = self;
        let mut moved = false;
        let waited = requests.waited(now);
        if requests.fill(now, |buf| adapter.poll_request(now, waited, buf)) {
            requests.note_request(adapter.asks_since());
            let end = requests.pass(now, below);
            if end == Passed::GivenUp {
                adapter.request_lost();
            }
            moved |= passed(end, counts);
        }
        if turned.fill(now, |buf| adapter.poll_turned(buf)) {
            moved |= passed(turned.pass(now, below), counts);
        }
        moved |= completions.pass(now, below, adapter, requests.held(), counts);
        // An access that the root port answers itself needs no TLP, and may make it interrupt.
        self.pass_reset_on();
        self.after_access();
        moved
    }

    /// From the switch to the adapter. Whether there was anything.
    fn move_up(&mut self) -> bool {
        let now = self.below.latest();
        let mut moved = false;
        for _ in 0..BATCH {
            if !self.adapter.has_room() {
                self.adapter.handle_guest(&mut Machine(&mut self.server));
                break;
            }
            let Some(length) = self.below.poll_tlp(now, &mut self.up[..]) else { break };
            moved = true;
            if self.connected.is_none() {
                self.counts.discarded += 1;
                continue;
            }
            self.adapter.handle_tlp(now, &self.up[..length], &mut Machine(&mut self.server));
        }
        self.answer();
        moved
    }

    /// The device that a TLP is for took nothing for too long.
    fn tell_given_up(&mut self, now: Instant) {
        let all = self.counts.given_up + self.below.given_up();
        if all > self.told.given_up_count {
            self.told.given_up_count = all;
            // Of the lines some go unsaid: only the sum tells of those, too.
            let line = format_args!("TLPs given up, their device takes nothing: {all} so far");
            self.told.given_up.warn(now, line);
        }
    }

    /// A client that agrees on nothing would keep others out for good.
    fn send_silent_away(&mut self, now: Instant) {
        let silent = self.connected.is_some() && !self.server.is_negotiated();
        if silent && self.connected.is_some_and(|since| now.saturating_since(since) > HELLO_BOUND) {
            warn!("a client that said nothing is let go");
            self.server.let_go();
        }
    }
}

/// Whether a TLP is gone from its lane.
fn passed(passed: Passed, counts: &mut Counts) -> bool {
    if passed == Passed::GivenUp {
        counts.given_up += 1;
    }
    passed != Passed::Held
}

#[cfg(test)]
mod tests;
