//! The proxy's own requests to a device for its [`Work`](super::slot::Work): one at a time, those to
//! configuration space with retries.

use crate::canaries::{Canary, planted};
use crate::limits::OWN_TLP;
use crate::queue::TlpQueue;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::ids::{Bdf, Bus, Device, Function, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, Packet, Repr};

/// How long the proxy waits for an answer to what it asks a device itself.
pub const ANSWER_BOUND: Duration = Duration::from_millis(500);

/// A proxy that looks at an answer's bound so much later than that is over has stood still itself: whether
/// the device answers is seen when it is asked once more.
pub(super) const STOOD_STILL: Duration = Duration::from_millis(5);

/// How long it waits after an answer that the device is not ready.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// What the proxy wants next of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Read a register.
    Read { function: u8, register: u16 },
    /// Write the bytes of a register that are enabled.
    Write { function: u8, register: u16, value: u32, enables: u8 },
    /// Read a doubleword of memory, below 4 GB.
    ReadMemory(u32),
    /// Write one.
    WriteMemory(u32, u32),
    /// Let some time pass.
    Pause(Duration),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// A read's value.
    Value(u32),
    /// A write was taken.
    Written,
    /// The time is over.
    Paused,
    /// Unsupported Request: nothing there.
    Nothing,
    /// No answer, not ready in time, or a broken one.
    Failed,
}

/// The state of one access.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    state: State,
    /// Until when configuration retry status is taken for an answer.
    ready_by: Instant,
    /// Whether the device was reset just now, so that it may not be there at all: until then it is
    /// asked again, too, when nothing answers.
    after_reset: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Idle,
    /// To be sent when there is a tag and room.
    ToSend(Want),
    /// Sent under this tag.
    Waiting {
        want: Want,
        tag: u16,
        until: Instant,
    },
    /// To be sent again.
    Again {
        want: Want,
        at: Instant,
    },
    Pausing {
        until: Instant,
    },
    Ended(Got),
}

impl Access {
    /// Begins; `ready_by` bounds how long the device may answer with retry status.
    pub(super) fn begin(&mut self, now: Instant, want: Want, ready_by: Instant) {
        (self.ready_by, self.after_reset) = (ready_by, false);
        self.state = match want {
            Want::Pause(time) => State::Pausing { until: now + time },
            want => State::ToSend(want),
        };
    }

    /// What was begun is the first request since the device was reset: its link may still train, and
    /// what is sent before it does is lost (PCIe 5.0 section 6.6.1).
    pub(super) fn after_reset(&mut self) {
        self.after_reset = true;
    }

    /// When something is to be done again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle => None,
            State::Ended(_) => Some(Instant::ZERO),
            // What it waits for, room, is looked at by the slot.
            State::ToSend(_) => Some(self.ready_by),
            State::Waiting { until, .. } | State::Pausing { until } => Some(until),
            State::Again { at, .. } => Some(at),
        }
    }

    /// The tag of the request under way.
    pub(super) fn tag(&self) -> Option<u16> {
        match self.state {
            State::Waiting { tag, .. } => Some(tag),
            _ => None,
        }
    }

    /// The function that the request to be sent is for.
    pub(super) fn function(&self) -> Option<u8> {
        match self.state {
            State::ToSend(Want::Read { function, .. } | Want::Write { function, .. }) => {
                Some(function)
            }
            _ => None,
        }
    }

    /// Whether a request waits for a tag and for room.
    pub(super) fn is_to_send(&self) -> bool {
        matches!(self.state, State::ToSend(_))
    }

    /// Whether a request wants a tag now.
    pub(super) fn wants_tag(&mut self, now: Instant) -> bool {
        if let State::Again { want, at } = self.state
            && at <= now
        {
            self.state = State::ToSend(want);
        }
        matches!(self.state, State::ToSend(_))
    }

    /// Sends the request under this tag. The queue has room.
    pub(super) fn send(&mut self, now: Instant, tag: u16, id: Bdf, queue: &mut TlpQueue) {
        let State::ToSend(want) = self.state else { return };
        send(want, tag, id, queue);
        self.state = State::Waiting { want, tag, until: now + ANSWER_BOUND };
    }

    /// Sends a request that is posted. Whether it was one. The queue has room.
    pub(super) fn send_posted(&mut self, queue: &mut TlpQueue) -> bool {
        let State::ToSend(Want::WriteMemory(address, value)) = self.state else { return false };
        let kind = Kind::MemWrite {
            requester: Bdf::default(),
            tag: Tag::new(0).expect("0 is a tag"),
            address: address.into(),
            enables: DOUBLEWORD,
            hint: None,
            data: &value.to_le_bytes(),
        };
        let mut buf = [0; OWN_TLP];
        let length = emit(kind, &mut buf);
        let pushed = queue.push(&buf[..length]);
        assert!(pushed, "the caller saw room");
        self.state = State::Ended(Got::Written);
        true
    }

    /// Ends a pause before its time.
    pub(super) fn wake(&mut self) {
        if let State::Pausing { until } = &mut self.state {
            *until = Instant::ZERO;
        }
    }

    /// Takes the completion for the request under way.
    pub(super) fn handle<T: AsRef<[u8]>>(&mut self, now: Instant, completion: &Packet<T>) {
        let State::Waiting { want, .. } = self.state else { return };
        let status = match completion.status() {
            // What is poisoned is not to be used (PCIe 5.0 section 2.7.2), and may be right next time.
            CplStatus::Success if completion.is_poisoned() && completion.payload_len() > 0 => {
                CplStatus::ConfigRetry
            }
            status => status,
        };
        self.state = match (status, want) {
            (CplStatus::Success, Want::Read { .. } | Want::ReadMemory(_)) => {
                match completion.payload() {
                    &[a, b, c, d] => State::Ended(Got::Value(u32::from_le_bytes([a, b, c, d]))),
                    _ => State::Ended(Got::Failed),
                }
            }
            (CplStatus::Success, _) => State::Ended(Got::Written),
            (CplStatus::ConfigRetry, want) => {
                let at = now + RETRY_PAUSE;
                if at < self.ready_by && !planted(Canary::AskOnce) {
                    State::Again { want, at }
                } else {
                    State::Ended(Got::Failed)
                }
            }
            (CplStatus::UnsupportedRequest, _) => State::Ended(Got::Nothing),
            _ => State::Ended(Got::Failed),
        };
    }

    /// What came of it, once.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Got> {
        let got = match self.state {
            State::Ended(got) => got,
            State::Pausing { until } if until <= now => Got::Paused,
            State::Waiting { want, until, .. }
                if until + STOOD_STILL < now
                    || until <= now && self.after_reset && now < self.ready_by =>
            {
                self.state = State::Again { want, at: now };
                return None;
            }
            State::Waiting { until, .. } if until <= now => Got::Failed,
            State::ToSend(_) if self.ready_by <= now => Got::Failed,
            _ => return None,
        };
        self.state = State::Idle;
        Some(got)
    }
}

/// The ID of a function: as its host last wrote to it, or device 0 on bus 1.
pub(super) fn id_of(function: u8, written: Option<Bdf>) -> Bdf {
    let function = Function::new(function).expect("at most 8");
    let own = || (Bus::new(1).expect("1"), Device::new(0).expect("0"));
    let (bus, device) = written.map_or_else(own, |id| (id.bus(), id.device()));
    Bdf::new(bus, device, function)
}

/// All bytes of one doubleword.
const DOUBLEWORD: ByteEnables = ByteEnables { first: 0xf, last: 0 };

/// Sends a non-posted request of the proxy. The queue has room.
pub(super) fn send(want: Want, tag: u16, id: Bdf, queue: &mut TlpQueue) {
    let mut buf = [0; OWN_TLP];
    let length = encode(want, tag, id, &mut buf);
    let pushed = queue.push(&buf[..length]);
    assert!(pushed, "the caller saw room");
}

/// Writes a non-posted request of the proxy (routing ID 00:00.0); configuration requests are of
/// type 0, to the function `id`.
fn encode(want: Want, tag: u16, id: Bdf, buf: &mut [u8]) -> usize {
    let tag = Tag::new(tag).expect("device-side tags have 8 bits");
    let data;
    let kind = match want {
        Want::Read { register, .. } => Kind::ConfigRead {
            type1: false,
            requester: Bdf::default(),
            tag,
            destination: id,
            register,
            first_be: 0xf,
        },
        Want::Write { register, value, enables, .. } => {
            data = value.to_le_bytes();
            Kind::ConfigWrite {
                type1: false,
                requester: Bdf::default(),
                tag,
                destination: id,
                register,
                first_be: enables,
                data: &data,
            }
        }
        Want::ReadMemory(address) => Kind::MemRead {
            requester: Bdf::default(),
            tag,
            address: address.into(),
            length_dw: 1,
            enables: DOUBLEWORD,
            hint: None,
            locked: false,
        },
        Want::WriteMemory(..) | Want::Pause(_) => unreachable!("it has no tag"),
    };
    emit(kind, buf)
}

fn emit(kind: Kind<'_>, buf: &mut [u8]) -> usize {
    let Ok(length) = Repr::new(kind).emit(buf) else { unreachable!("it fits a buffer") };
    length
}
