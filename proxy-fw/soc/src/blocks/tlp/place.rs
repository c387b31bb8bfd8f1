//! One slot of the block: its grants, and the device in it or the host behind it.

use super::{MAX_AHEAD, Stored};
use crate::blocks::timer::Timer;
use crate::board::{Happening, SlotWire, Windows};
use crate::waiting::Waiting;
use card_regs::Bus;
use card_regs::slot::{Control, ReceiveGrant, Slot as Block};
use card_regs::values::{Indicator, PayloadSize, SlotEvent, SlotLink};
use core::time::Duration;
use proxy_core::boxes::SlotSignal;
use proxy_core::config_space::ResetKind;
use proxy_core::control::Name;
use proxy_core::limits::MAX_PAYLOAD_OFFERED;
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use tlp_codec::tlp::Class;

/// Between power and the end of PERST#: T_PVPERL (PCI Express Card Electromechanical Specification
/// 4.0, section 2.2).
const POWER_STABLE: Duration = Duration::from_millis(100);

/// How long a link is held in hot reset at least (PCI Express Base 5.0, section 4.2.6.11).
const HOT_RESET: Duration = Duration::from_millis(2);

/// How long PERST# is asserted at least, when it ends no power-up: ten times T_PERST (Card
/// Electromechanical Specification 4.0, section 2.2). Hosts may say both its ends at once.
const PERST: Duration = Duration::from_millis(1);

/// The largest payload of a TLP that comes in.
const PAYLOAD: PayloadSize = match MAX_PAYLOAD_OFFERED {
    128 => PayloadSize::Bytes128,
    256 => PayloadSize::Bytes256,
    512 => PayloadSize::Bytes512,
    1024 => PayloadSize::Bytes1024,
    2048 => PayloadSize::Bytes2048,
    4096 => PayloadSize::Bytes4096,
    _ => panic!("PCIe has no such size"),
};

/// The device of a box's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    /// None is there.
    Absent,
    /// It has power since then, and PERST# is asserted.
    Powered(Instant),
    /// Its link was not up yet, or went down by itself.
    Training,
    /// It was told of.
    Known,
    /// Its power failed: it stays off until it is taken out.
    Failed,
}

/// What a slot faces.
#[derive(Debug)]
enum Facing {
    /// A device of this name.
    Device { device: Device, model: Name, perst: bool },
    /// A host, and whether a root complex was told of.
    Root { known: bool },
}

/// What an event changes for others.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) happening: Option<Happening>,
    /// What came in before means nothing any more.
    pub(super) clear: bool,
    /// No such event can be.
    pub(super) wrong: bool,
}

impl Change {
    fn of(happening: Happening) -> Self {
        Self { happening: Some(happening), clear: true, wrong: false }
    }
}

/// A slot.
#[derive(Debug)]
pub(super) struct Place<B> {
    block: Block<B>,
    /// TLPs sent, and how many may have been, by class, modulo 256.
    sent: [u8; 3],
    may_send: [u8; 3],
    /// TLPs that came, how many may have come, and how many were taken away.
    delivered: [u8; 3],
    granted: [u8; 3],
    freed: [u8; 3],
    /// What came and was not taken.
    pub(super) waiting: Waiting<Stored>,
    /// Which one was given last.
    pub(super) given: usize,
    /// TLPs in the transmit queue.
    sending: u16,
    /// The link is up, as the events say that were looked at.
    up: bool,
    /// A reset was begun while the link was up. Until it goes down for that, what comes in is from
    /// before the reset.
    resetting: bool,
    /// Until when the link is held in hot reset.
    hot_reset: Option<Instant>,
    /// Until when PERST#, which was asserted, stays so.
    perst_until: Instant,
    /// What the wires are to say once no TLP is on its way out.
    pub(super) signal: Option<SlotSignal>,
    facing: Facing,
}

impl<B: Bus + Copy> Place<B> {
    /// A box's slot.
    pub(super) fn slot(block: Block<B>, model: Name, windows: Windows) -> Self {
        let facing = Facing::Device { device: Device::Absent, model, perst: false };
        Self::new(block, facing, windows)
    }

    /// A host card's only one.
    pub(super) fn root(block: Block<B>, windows: Windows) -> Self {
        Self::new(block, Facing::Root { known: false }, windows)
    }

    fn new(block: Block<B>, facing: Facing, windows: Windows) -> Self {
        // The block was reset with the core, so all counts begin at 0.
        Self {
            block,
            sent: [0; 3],
            may_send: [0; 3],
            delivered: [0; 3],
            granted: [0; 3],
            freed: [0; 3],
            waiting: Waiting::new(windows),
            given: 0,
            sending: 0,
            up: false,
            resetting: false,
            hot_reset: None,
            perst_until: Instant::ZERO,
            signal: None,
            facing,
        }
    }

    /// Begins, once there are buffers.
    pub(super) fn start(&mut self, now: Instant) {
        match &self.facing {
            Facing::Root { .. } => {
                let control = Control::RESET.with_max_payload(PAYLOAD);
                self.block.control().write(control.with_link_disable(false).with_perst(false));
            }
            Facing::Device { .. } => {
                self.off();
                if self.block.status().read().present() {
                    self.on(now);
                }
            }
        }
    }

    fn off(&mut self) {
        self.block.control().write(Control::RESET.with_max_payload(PAYLOAD));
        (self.up, self.resetting, self.hot_reset) = (false, false, None);
        // A device that comes is reset anyway.
        self.signal = None;
    }

    /// Gives a device power.
    fn on(&mut self, now: Instant) {
        let Facing::Device { device, perst, .. } = &mut self.facing else { return };
        (*device, *perst) = (Device::Powered(now), false);
        let control = Control::RESET.with_max_payload(PAYLOAD).with_power(true);
        self.block.control().write(control.with_power_indicator(Indicator::On));
    }

    /// Whether something is to be done at a time.
    pub(super) fn waits_for_time(&self) -> bool {
        let powered = matches!(self.facing, Facing::Device { device: Device::Powered(_), .. });
        self.hot_reset.is_some() || self.signal.is_some() || powered
    }

    /// Whether the link is held in hot reset, or PERST# for its time: who ends that may not sleep.
    pub(super) fn holds_reset(&self) -> bool {
        self.hot_reset.is_some() || self.signal.is_some() && self.sending == 0
    }

    /// Does what was to be done by now. Whether the wires were driven, behind the last TLP.
    pub(super) fn time_goes_on(&mut self, now: Instant) -> bool {
        let held =
            self.signal == Some(SlotSignal::Perst { asserted: false }) && now < self.perst_until;
        let signal = if self.sending == 0 && !held { self.signal.take() } else { None };
        if let Some(signal) = signal {
            self.drive(signal, now);
        }
        if self.hot_reset.is_some_and(|until| until <= now) {
            self.hot_reset = None;
            self.block.control().modify(|control| control.with_hot_reset(false));
        }
        let Facing::Device { device, perst, .. } = &mut self.facing else { return false };
        if let Device::Powered(since) = device {
            if !self.block.status().read().power_good() {
                *since = now;
            } else if *since + POWER_STABLE <= now {
                *device = Device::Training;
                let held = *perst;
                let change = |control: Control| control.with_perst(held).with_link_disable(false);
                self.block.control().modify(change);
            }
        }
        signal.is_some()
    }

    /// Something happened at the slot.
    pub(super) fn event(&mut self, event: SlotEvent, at: SlotWire, timer: &Timer<B>) -> Change {
        match event {
            SlotEvent::LinkUp => {
                // It went down before, also where that was not heard of.
                (self.up, self.resetting) = (true, false);
                self.link_came_up(at)
            }
            SlotEvent::LinkDown => {
                self.up = false;
                // One reset may begin while the link trains after another.
                let told = core::mem::take(&mut self.resetting) || self.hot_reset.is_some();
                if told { Change::default() } else { self.link_was_lost(at) }
            }
            // Nobody is told of these yet.
            SlotEvent::Wake | SlotEvent::AttentionButton => Change::default(),
            _ => match self.facing {
                Facing::Device { .. } => self.device_event(event, at, timer),
                Facing::Root { .. } => self.root_event(event),
            },
        }
    }

    fn link_came_up(&mut self, at: SlotWire) -> Change {
        let happening = match &mut self.facing {
            Facing::Device { device: device @ Device::Training, model, .. } => {
                *device = Device::Known;
                Some(Happening::Inserted(at, model.clone()))
            }
            Facing::Root { known } if !*known => {
                *known = true;
                Some(Happening::RootComplex(true))
            }
            Facing::Device { device: Device::Known, .. } | Facing::Root { .. } => None,
            Facing::Device { .. } => return Change { wrong: true, ..Change::default() },
        };
        Change { happening, ..Change::default() }
    }

    /// The link went down by itself, which resets what is behind it.
    fn link_was_lost(&mut self, at: SlotWire) -> Change {
        match &mut self.facing {
            Facing::Device { device: device @ Device::Known, .. } => {
                *device = Device::Training;
                Change::of(Happening::Removed(at))
            }
            Facing::Root { known } if *known => {
                *known = false;
                Change::of(Happening::RootComplex(false))
            }
            _ => Change { clear: true, ..Change::default() },
        }
    }

    fn device_event(&mut self, event: SlotEvent, at: SlotWire, timer: &Timer<B>) -> Change {
        let Facing::Device { device, .. } = &mut self.facing else { return Change::default() };
        let was = *device;
        match event {
            SlotEvent::Inserted => {
                if matches!(was, Device::Absent | Device::Failed) {
                    self.on(timer.now());
                }
                return Change::default();
            }
            SlotEvent::Removed => *device = Device::Absent,
            SlotEvent::PowerFault => *device = Device::Failed,
            _ => return Change { wrong: true, ..Change::default() },
        }
        self.off();
        match was {
            Device::Known => Change::of(Happening::Removed(at)),
            _ => Change { clear: true, ..Change::default() },
        }
    }

    fn root_event(&mut self, event: SlotEvent) -> Change {
        let kind = match event {
            SlotEvent::PerstAsserted => ResetKind::Fundamental,
            SlotEvent::HotReset => ResetKind::Hot,
            // The role was reset when it was asserted.
            SlotEvent::PerstReleased => return Change::default(),
            _ => return Change { wrong: true, ..Change::default() },
        };
        self.resetting = self.up;
        Change::of(Happening::Reset(kind))
    }

    /// What comes in is from before a reset.
    pub(super) fn is_in_reset(&self) -> bool {
        self.resetting
    }

    /// Drives the wires of a box's slot.
    fn drive(&mut self, signal: SlotSignal, now: Instant) {
        let Facing::Device { device, perst, .. } = &mut self.facing else { return };
        let has_link = matches!(device, Device::Known | Device::Training);
        match signal {
            SlotSignal::HotReset => {
                if !has_link {
                    return;
                }
                self.hot_reset = Some(now + HOT_RESET);
                self.block.control().modify(|control| control.with_hot_reset(true));
                self.resetting |= self.up;
            }
            SlotSignal::Perst { asserted } => {
                *perst = asserted;
                if !has_link {
                    return;
                }
                self.block.control().modify(|control| control.with_perst(asserted));
                if asserted {
                    self.perst_until = now + PERST;
                }
                self.resetting |= asserted && self.up;
            }
        }
    }

    /// Classes of which a TLP can go out now: none as long as the wires are to be driven first, or the
    /// link of a device that was reset is not up again.
    pub(super) fn room(&mut self) -> ClassSet {
        if self.signal.is_some() || self.is_away() {
            return ClassSet::NONE;
        }
        let known = self.open();
        if known == ClassSet::ALL {
            return known;
        }
        let grant = self.block.transmit_grant().read();
        self.may_send = [grant.posted(), grant.non_posted(), grant.completion()];
        self.open()
    }

    /// Whether its device was reset and its link is still to come up. The block would give back what is
    /// sent now, and each request would cost a tag until the next reset.
    fn is_away(&self) -> bool {
        matches!(self.facing, Facing::Device { device: Device::Known, .. })
            && (!self.up || self.resetting)
    }

    fn open(&self) -> ClassSet {
        let open = |class: &Class| {
            let class = *class as usize;
            (1..=MAX_AHEAD).contains(&self.may_send[class].wrapping_sub(self.sent[class]))
        };
        Class::ALL.into_iter().filter(open).collect()
    }

    /// A TLP is given to the transmit queue.
    pub(super) fn send(&mut self, class: Class) {
        let has_room = self.open().contains(class) || self.room().contains(class);
        assert!(has_room, "there was room for its class");
        self.sent[class as usize] = self.sent[class as usize].wrapping_add(1);
        self.sending += 1;
    }

    /// The transmit queue is done with a TLP.
    pub(super) fn sent_one(&mut self) {
        self.sending = self.sending.saturating_sub(1);
    }

    /// A TLP was given to the transmit queue, and the block has not taken it.
    pub(super) fn unsend(&mut self, class: Class) {
        self.sent[class as usize] = self.sent[class as usize].wrapping_sub(1);
        self.sent_one();
    }

    /// A TLP came; false: it was not granted.
    pub(super) fn deliver(&mut self, class: Class) -> bool {
        let class = class as usize;
        let granted = self.delivered[class] != self.granted[class];
        self.delivered[class] = self.delivered[class].wrapping_add(u8::from(granted));
        granted
    }

    /// A TLP that came has left its buffer.
    pub(super) fn free(&mut self, class: Class) {
        self.freed[class as usize] = self.freed[class as usize].wrapping_add(1);
    }

    /// Grants what there is room for.
    pub(super) fn grant(&mut self, windows: Windows) {
        let mut grant = self.freed;
        for (limit, window) in grant.iter_mut().zip(windows.0) {
            *limit = limit.wrapping_add(window);
        }
        if grant != self.granted {
            self.granted = grant;
            let [posted, non_posted, completion] = grant;
            let value = ReceiveGrant::RESET.with_posted(posted).with_non_posted(non_posted);
            self.block.receive_grant().write(value.with_completion(completion));
        }
    }

    /// After the receive queue stopped: an event that the port's state tells of and that never came. It
    /// may still come, and then changes nothing.
    pub(super) fn missed(&self) -> Option<SlotEvent> {
        let status = self.block.status().read();
        if let Facing::Device { device, .. } = &self.facing {
            let is_there = *device != Device::Absent;
            if status.present() != is_there {
                return Some(if is_there { SlotEvent::Removed } else { SlotEvent::Inserted });
            }
            if status.power_fault() && is_there && *device != Device::Failed {
                return Some(SlotEvent::PowerFault);
            }
        }
        let is_up = status.link() == SlotLink::Up;
        let event = if is_up { SlotEvent::LinkUp } else { SlotEvent::LinkDown };
        (is_up != self.up).then_some(event)
    }

    /// After the receive queue stopped: TLPs that the block counts as delivered and that never
    /// came. They are no more waited for.
    pub(super) fn catch_up(&mut self) -> u64 {
        let delivered = self.block.delivered().read();
        let delivered = [delivered.posted(), delivered.non_posted(), delivered.completion()];
        let mut lost = 0;
        for (class, now) in delivered.into_iter().enumerate() {
            let more = now.wrapping_sub(self.delivered[class]);
            if more <= self.granted[class].wrapping_sub(self.delivered[class]) {
                lost += u64::from(more);
                self.delivered[class] = now;
                self.freed[class] = self.freed[class].wrapping_add(more);
            }
        }
        lost
    }
}
