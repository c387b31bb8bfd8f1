//! An NVMe drive: the controller of the box proxy's own device models, over an image in memory.
//! It has no bad manners but to be slow, or to hang.

use super::{End, Manner, Mark, WAITING};
use crate::oracle::{Verdict, Violation};
use crate::random::{Drawer, Random};
use device_models::Device as _;
use device_models::endpoint::Endpoint;
use device_models::endpoint::registers::{DEVICE_CONTROL, DEVICE_CONTROL_FLR};
use device_models::nvme::image::{Ended, Full, Image, ImageOp, MemoryImage};
use device_models::nvme::{BlockSize, Config, Nvme};
use proxy_core::boxes::SlotSignal;
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::tlp::{Class, MAX_TLP, Packet, TlpType};

/// Bytes that a drive stores.
pub(crate) const CAPACITY: usize = 1 << 20;
/// What the controller does at once takes it so long.
const STEP: Duration = Duration::from_micros(1);
/// After a reset it asks to be tried again for so long.
const READY_AFTER: Duration = Duration::from_millis(3);

/// In the second byte of a header (PCIe 5.0 section 2.2.1).
const ID_BASED_ORDERING: u8 = 1 << 2;

/// What no TLP from its proxy may make a drive count.
const NEVER: [&str; 4] = [
    "device.malformed",
    "device.receiver_overflow",
    "device.unexpected_completions",
    "device.poisoned",
];

/// What a drive stores, for the drive and for who watches it.
#[derive(Clone)]
pub(crate) struct Medium(Arc<Mutex<MemoryImage>>);

impl Medium {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(MemoryImage::new(CAPACITY))))
    }

    fn with<T>(&self, act: impl FnOnce(&mut MemoryImage) -> T) -> T {
        act(&mut self.0.lock().expect("one thread"))
    }

    /// What is stored from a byte on.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.with(|image| image.read(offset as u64, &mut bytes)).expect("within the image");
        bytes
    }

    /// The medium rots: one bit of a byte is another one.
    #[cfg(test)]
    pub(crate) fn rot(&self, offset: usize) {
        let byte = self.bytes(offset, 1)[0] ^ 0x10;
        self.with(|image| image.write(offset as u64, &[byte])).expect("within the image");
    }
}

impl Image for Medium {
    fn size(&self) -> u64 {
        self.with(|image| image.size())
    }

    fn is_read_only(&self) -> bool {
        self.with(|image| image.is_read_only())
    }

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.with(|image| image.read_now(offset, buf))
    }

    fn write_now(&mut self, offset: u64, data: &[u8]) -> io::Result<bool> {
        self.with(|image| image.write_now(offset, data))
    }

    fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Full> {
        self.with(|image| image.start(id, op))
    }

    fn finished(&mut self) -> Option<Ended> {
        self.with(Image::finished)
    }

    fn cancel(&mut self, id: u64) {
        self.with(|image| image.cancel(id));
    }

    fn abandon(&mut self) {
        self.with(Image::abandon);
    }

    fn is_settled(&self) -> bool {
        self.with(|image| image.is_settled())
    }
}

/// A drive.
pub(crate) struct Drive {
    pub(super) end: End,
    nvme: Endpoint<Nvme>,
    /// Answers that are held back.
    late: VecDeque<(Instant, Vec<u8>)>,
    buffer: Vec<u8>,
    /// ID-based ordering of what it sends, which the controller leaves out.
    random: Random,
}

impl Drive {
    /// With that serial number, and blocks of 512 or 4096 bytes.
    pub(crate) fn new(serial: u64, name: &str, block: usize, medium: Medium) -> Self {
        let config = Config {
            serial_number: name.into(),
            io_queues: 4,
            serial,
            ready_after: READY_AFTER,
            ..Config::default()
        };
        let block = if block == 512 { BlockSize::B512 } else { BlockSize::B4096 };
        let image: Box<dyn Image> = Box::new(medium);
        let namespaces = std::iter::once((image, block)).collect();
        let nvme = Nvme::device(config, namespaces).expect("a drive that can be made");
        let buffer = vec![0; MAX_TLP];
        let random = Random::stream(serial, Drawer::Answer, 0);
        Self { end: End::new(), nvme, late: VecDeque::new(), buffer, random }
    }

    /// Power goes and comes back.
    pub(super) fn power_cycle(&mut self, now: Instant) {
        self.forget();
        for on in [false, true] {
            self.nvme.handle_reset(age(now), device_models::ResetKind::Power { on });
        }
    }

    pub(super) fn signal(&mut self, now: Instant, signal: SlotSignal) -> bool {
        let kind = match signal {
            SlotSignal::HotReset => device_models::ResetKind::HotReset,
            SlotSignal::Perst { asserted } => device_models::ResetKind::Perst { asserted },
        };
        self.nvme.handle_reset(age(now), kind);
        let resets = signal != SlotSignal::Perst { asserted: false };
        if resets {
            self.forget();
        }
        resets
    }

    fn forget(&mut self) {
        self.end.reset();
        self.late.clear();
    }

    pub(super) fn room(&self) -> ClassSet {
        let full = self.end.out.len() > WAITING || !self.nvme.can_take(Class::NonPosted);
        if full { ClassSet::ALL.without(Class::NonPosted) } else { ClassSet::ALL }
    }

    fn hangs(&self) -> bool {
        self.end.manner == Manner::Hangs
    }

    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        let late = self.late.front().map(|late| late.0);
        // While it has no room it goes on when something was taken.
        let goes_on = !self.hangs() && self.end.out.len() < WAITING;
        let own = self.nvme.poll_timeout().filter(|_| goes_on);
        let own = own.map(|at| (Instant::ZERO + at).max(now + STEP));
        [late, own].into_iter().flatten().min()
    }

    pub(super) fn wake(&mut self, now: Instant) {
        while self.late.front().is_some_and(|late| late.0 <= now) {
            let (_, bytes) = self.late.pop_front().expect("looked at just now");
            self.end.misdeeds[0] += 1;
            self.end.out.push_bytes(Class::Completion, bytes, Mark::Answers);
        }
        if !self.hangs() {
            self.nvme.handle_timeout(age(now));
        }
        self.work(now);
    }

    pub(super) fn handle(&mut self, now: Instant, tlp: &[u8]) -> Verdict<bool> {
        let packet = Packet::new_checked(tlp).expect("checked by the caller");
        match packet.class() {
            Some(Class::Completion) => {
                self.end.requests.complete(tlp, false)?;
            }
            Some(Class::Posted) => {}
            _ if self.hangs() => {
                self.end.misdeeds[1] += 1;
                return Ok(false);
            }
            _ => {}
        }
        let resets = self.resets_function(&packet);
        let before = if resets { self.function_resets() } else { 0 };
        self.nvme.handle_tlp(age(now), tlp);
        let was_reset = resets && self.function_resets() != before;
        if was_reset {
            self.end.function_reset();
            self.late.clear();
        }
        self.work(now);
        Ok(was_reset)
    }

    /// Whether it is a configuration write that asks for a function-level reset.
    fn resets_function(&self, packet: &Packet<&[u8]>) -> bool {
        packet.tlp_type() == TlpType::CfgWr0
            && packet.register() == DEVICE_CONTROL
            && packet.byte_enables().first & 2 != 0
            && packet
                .payload()
                .get(1)
                .is_some_and(|byte| byte & (DEVICE_CONTROL_FLR >> 8) as u8 != 0)
    }

    fn function_resets(&self) -> u64 {
        let counters = self.nvme.counters();
        counters
            .iter()
            .find(|c| c.0 == "device.function_resets")
            .expect("every endpoint counts them")
            .1
    }

    /// The controller counts what it should never get.
    pub(super) fn check(&self) -> Verdict {
        let counters = self.nvme.counters();
        match counters.iter().find(|(name, count)| NEVER.contains(name) && *count > 0) {
            None => Ok(()),
            Some((name, count)) => {
                Err(Violation::new(1, format!("a drive counts {count} of {name}")))
            }
        }
    }

    /// What the controller has to say is put in front of its proxy, as far as there is room.
    pub(super) fn work(&mut self, now: Instant) {
        if self.hangs() {
            return;
        }
        while self.end.out.len() < WAITING {
            let Some(length) = self.nvme.poll_tlp(age(now), &mut self.buffer) else { return };
            let mut bytes = self.buffer[..length].to_vec();
            if self.random.chance(400_000) {
                bytes[1] |= ID_BASED_ORDERING;
            }
            let class = Packet::new_checked(&bytes[..]).ok().and_then(|packet| packet.class());
            let class = class.expect("the controller makes only TLPs of known kinds");
            match (class, self.end.manner) {
                (Class::Posted, _) => self.end.out.push_bytes(class, bytes, Mark::Own),
                (Class::NonPosted, _) => self.end.out.push_bytes(class, bytes, Mark::AsksTagged),
                (Class::Completion, Manner::Late(by)) => self.late.push_back((now + by, bytes)),
                (Class::Completion, _) => self.end.out.push_bytes(class, bytes, Mark::Answers),
            }
        }
    }
}

/// The devices' clock.
fn age(now: Instant) -> Duration {
    now.saturating_since(Instant::ZERO)
}
