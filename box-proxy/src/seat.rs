//! A device in its slot, and the TLPs between it and the role.

use device_models::{Classes, Device, ResetKind};
use proxy_core::boxes::{BoxRole, SlotSignal};
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::time::Instant;
use proxy_daemon::Clock;
use std::time::Duration;
use tlp_codec::ids::SlotId;
use tlp_codec::tlp::{Class, MAX_TLP, Packet};

/// TLPs moved in either direction in one turn, so that one device does not starve the others. Many
/// fill frames well.
const BATCH: usize = 256;

/// TLPs that make the time old. Reading the clock takes as long as moving one of them.
const OLD: usize = 8;

/// TLPs of a device between two looks at the clock: a device that times what it does would find
/// that a job of a whole turn took none.
const LOOK: usize = 32;

/// The first look of a turn.
const FIRST_LOOK: usize = 4;

/// From one look to the next a device takes less than this, or the next look comes at once: what it does
/// may take long, such as a drive's image that waits for its disk.
const QUICK: Duration = Duration::from_micros(50);

/// A device has this long in a turn for what it has to say, from its first look to the last thing that it
/// does: the links, and the other devices, wait for it.
const LONGEST: Duration = Duration::from_micros(200);

/// What a turn of a seat did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing.
    Nothing,
    /// Something that took no time to speak of.
    Little,
    /// So much that the time is to be read anew.
    Long,
}

/// A device in its slot.
pub struct Seat {
    slot: SlotId,
    device: Box<dyn Device>,
    /// A TLP of the device that the role had no room for.
    held: Option<usize>,
    /// The device got a request that somebody waits for.
    read: bool,
    /// It took long the last time that it was asked for what it has.
    is_slow: bool,
    out: Box<[u8; MAX_TLP]>,
    into: Box<[u8; TLP_BUFFER]>,
}

impl Seat {
    /// Puts a device into a slot.
    pub fn new(slot: SlotId, device: Box<dyn Device>) -> Self {
        Self {
            slot,
            device,
            held: None,
            read: false,
            is_slow: false,
            out: Box::new([0; MAX_TLP]),
            into: Box::new([0; TLP_BUFFER]),
        }
    }

    /// The slot's number.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Moves what is to be moved; what was done. The clock is read only where work made `now` old.
    pub fn turn(&mut self, role: &mut BoxRole, clock: &Clock, now: Instant) -> Done {
        let signalled = self.signals(role, now);
        let (fed, mut now) = self.feed_device(role, clock, now);
        if signalled || fed >= OLD {
            now = clock.now();
        }
        let due = self.device.poll_timeout().is_some_and(|at| at <= since_origin(now));
        if due {
            self.device.handle_timeout(since_origin(now));
            now = clock.now();
        }
        let drained = self.drain_device(role, clock, now);
        let moved = fed + drained;
        if signalled || due || moved >= OLD {
            Done::Long
        } else if moved > 0 {
            Done::Little
        } else {
            Done::Nothing
        }
    }

    /// Whether the device got a request since this was last asked whose answer a processor waits for.
    pub fn took_read(&mut self) -> bool {
        std::mem::take(&mut self.read)
    }

    /// When the device wants its time.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.device.poll_timeout()
    }

    fn signals(&mut self, role: &mut BoxRole, now: Instant) -> bool {
        let mut any = false;
        while let Some(signal) = role.poll_signal(self.slot) {
            any = true;
            // What the device had to say before its reset is not said any more.
            self.held = None;
            let kind = match signal {
                SlotSignal::HotReset => ResetKind::HotReset,
                SlotSignal::Perst { asserted } => ResetKind::Perst { asserted },
            };
            self.device.handle_reset(since_origin(now), kind);
        }
        any
    }

    /// How many TLPs the device took, and the time: a later one where that of a TLP was taken, whose
    /// answer cannot have come before.
    fn feed_device(
        &mut self,
        role: &mut BoxRole,
        clock: &Clock,
        mut now: Instant,
    ) -> (usize, Instant) {
        for moved in 0..BATCH {
            let mut room = ClassSet::NONE;
            for class in Class::ALL {
                if self.device.can_take(class) {
                    room = room.with(class);
                }
            }
            let Some(length) = role.poll_tlp(now, self.slot, room, &mut self.into[..]) else {
                return (moved, now);
            };
            let class =
                Packet::new_header_checked(&self.into[..length]).ok().and_then(|tlp| tlp.class());
            self.read |= class == Some(Class::NonPosted);
            self.device.handle_tlp(since_origin(now), &self.into[..length]);
            if role.wants_mark() {
                now = clock.now();
                role.mark(now);
            }
        }
        (BATCH, now)
    }

    /// How many TLPs the role took; of a device that took long a whole turn's, since it has more.
    fn drain_device(&mut self, role: &mut BoxRole, clock: &Clock, mut now: Instant) -> usize {
        // What the role takes, and how many TLPs until it is asked again.
        let (mut classes, mut sure) = (Classes::NONE, 0);
        let mut step = if std::mem::take(&mut self.is_slow) { 1 } else { FIRST_LOOK };
        // From its first look on: until then the time is also that of the others before it.
        let (mut look_at, mut begun) = (step, None);
        for moved in 0..BATCH {
            if moved == look_at {
                let before = std::mem::replace(&mut now, clock.now());
                if now.saturating_since(*begun.get_or_insert(now)) > LONGEST {
                    self.is_slow = true;
                    return BATCH;
                }
                let quick = now.saturating_since(before) < QUICK;
                step = if quick { (step * 2).min(LOOK) } else { 1 };
                look_at += step;
            }
            let held = self.held.take();
            let polled = held.or_else(|| {
                if sure == 0 {
                    let (room, many) = role.takes(self.slot);
                    classes =
                        Class::ALL.into_iter().filter(|&class| room.contains(class)).collect();
                    sure = many;
                }
                sure = sure.saturating_sub(1);
                self.device.poll_tlp_of(since_origin(now), classes, &mut self.out[..])
            });
            let Some(length) = polled else { return moved };
            if role.handle_tlp(now, self.slot, &self.out[..length]).is_err() {
                self.held = Some(length);
                return moved;
            }
            if role.wants_mark() {
                role.mark(clock.now());
            }
        }
        BATCH
    }
}

fn since_origin(now: Instant) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use device_models::accelerator::{self, Accelerator};
    use proxy_core::boxes::BoxConfig;

    /// A device that has ever more to say, each time after so long.
    struct Slow(Duration, usize);

    impl Device for Slow {
        fn can_take(&self, _: Class) -> bool {
            true
        }

        fn handle_tlp(&mut self, _: Duration, _: &[u8]) {}

        fn poll_tlp_of(&mut self, _: Duration, _: Classes, buf: &mut [u8]) -> Option<usize> {
            std::thread::sleep(self.0);
            self.1 += 1;
            // A message that nobody wants.
            buf[..16].copy_from_slice(&[0x34, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0]);
            Some(16)
        }

        fn handle_reset(&mut self, _: Duration, _: ResetKind) {}

        fn poll_timeout(&self) -> Option<Duration> {
            None
        }

        fn handle_timeout(&mut self, _: Duration) {}

        fn counters(&self) -> Vec<(&'static str, u64)> {
            vec![("polls", self.1 as u64)]
        }
    }

    #[test]
    fn a_device_that_takes_long_has_a_part_of_a_turn() {
        let slot = SlotId::new(1).unwrap();
        let slow = Slow(Duration::from_millis(2), 0);
        let (mut seat, clock) = (Seat::new(slot, Box::new(slow)), Clock::default());
        let mut role = BoxRole::new(&BoxConfig { slots: 1, ..BoxConfig::default() });
        role.device_inserted(clock.now(), slot, Default::default());
        let mut polls = |seat: &mut Seat| {
            let before = seat.device().counters()[0].1 as usize;
            assert_eq!(seat.turn(&mut role, &clock, clock.now()), Done::Long);
            seat.device().counters()[0].1 as usize - before
        };
        assert_eq!(polls(&mut seat), FIRST_LOOK + 1);
        assert_eq!(polls(&mut seat), 2, "it is known to be slow");
    }

    #[test]
    fn reads_are_told() {
        let slot = SlotId::new(1).unwrap();
        let device = Accelerator::device(accelerator::Config::default()).unwrap();
        let (mut seat, clock) = (Seat::new(slot, Box::new(device)), Clock::default());
        let mut role = BoxRole::new(&BoxConfig { slots: 1, ..BoxConfig::default() });
        seat.turn(&mut role, &clock, clock.now());
        assert!(!seat.took_read());
        // The box looks at what came: its configuration reads are requests, too.
        let mut now = clock.now();
        role.device_inserted(now, slot, Default::default());
        let told = (0..100).find(|_| {
            now = role.poll_timeout().unwrap_or(now);
            role.handle_timeout(now);
            seat.turn(&mut role, &clock, now);
            seat.took_read()
        });
        assert!(told.is_some() && !seat.took_read(), "it is told once");
    }
}
