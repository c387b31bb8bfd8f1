//! A box has a drive erase itself: the box role against the model of an NVMe controller, and
//! against controllers that misbehave. Time jumps from timer to timer.

use device_models::accelerator::{self, Accelerator};
use device_models::nvme::image::{Ended, Full, Image, ImageOp, MemoryImage};
use device_models::nvme::{BlockSize, Config, Nvme};
use device_models::{Classes, Device, ResetKind};
use proptest::prelude::*;
use proxy_core::boxes::{BoxConfig, BoxRole, SlotSignal};
use proxy_core::control::*;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::time::Instant;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, SlotFunction, SlotId};
use tlp_codec::tlp::{Class, MAX_TLP, Packet};

const SIZE: usize = 1 << 20;
const SERIAL: u64 = 0x1234_5678;

/// Blocks that a test can look at while a controller has them.
#[derive(Clone)]
struct Shared {
    image: Arc<Mutex<MemoryImage>>,
    /// Whether what takes long fails, and whether it ever ends.
    fails: bool,
    ends: bool,
    /// It ends later.
    holds: Arc<AtomicBool>,
}

impl Shared {
    fn full() -> Self {
        let mut image = MemoryImage::new(SIZE);
        image.write(0, &vec![0xa5; SIZE]).unwrap();
        Self { image: Arc::new(Mutex::new(image)), fails: false, ends: true, holds: Arc::default() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        self.image.lock().unwrap().read(0, &mut bytes).unwrap();
        bytes
    }

    fn is_erased(&self) -> bool {
        self.bytes().iter().all(|byte| *byte == 0)
    }
}

impl Image for Shared {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.image.lock().unwrap().read_now(offset, buf)
    }

    fn write_now(&mut self, offset: u64, data: &[u8]) -> io::Result<bool> {
        self.image.lock().unwrap().write_now(offset, data)
    }

    fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Full> {
        let op = if self.fails { ImageOp::Flush } else { op };
        self.image.lock().unwrap().start(id, op)
    }

    fn finished(&mut self) -> Option<Ended> {
        if !self.ends || self.holds.load(Ordering::Relaxed) {
            return None;
        }
        let (id, result) = self.image.lock().unwrap().finished()?;
        let failed = || Err(io::Error::other("planned"));
        Some((id, if self.fails { failed() } else { result }))
    }

    fn cancel(&mut self, id: u64) {
        self.image.lock().unwrap().cancel(id);
    }

    fn abandon(&mut self) {
        self.image.lock().unwrap().abandon();
    }

    fn is_settled(&self) -> bool {
        true
    }
}

/// A box with one device in slot 1, on a clock that jumps.
struct Bench<D> {
    role: BoxRole,
    device: D,
    now: Instant,
    asked: u64,
    /// Reads of a device that is erased behind which no further one is taken for now.
    held_back: u64,
}

fn slot() -> SlotId {
    SlotId::new(1).unwrap()
}

fn key(counter: u32) -> BindingKey {
    let epoch = Epoch::new(0, counter).unwrap();
    BindingKey { slot: slot(), function: SlotFunction::ZERO, epoch }
}

fn drive(images: Vec<(Box<dyn Image>, BlockSize)>) -> impl Device {
    Nvme::device(Config { serial: SERIAL, ..Config::default() }, images).unwrap()
}

fn request(counter: u32, methods: &[EraseMethod]) -> EraseRequest {
    let methods = methods.iter().copied().collect();
    EraseRequest { key: key(counter), serial: SERIAL, methods, within_s: 60 }
}

impl<D: Device> Bench<D> {
    fn new(device: D) -> Self {
        Self::after(device, Instant::ZERO)
    }

    /// A proxy that begins then, and knows nothing of what the device did before.
    fn after(device: D, now: Instant) -> Self {
        let mut role = BoxRole::new(&BoxConfig { slots: 1, ..BoxConfig::default() });
        role.set_node(NodeId::new(1).unwrap());
        role.device_inserted(now, slot(), "drive".try_into().unwrap());
        let mut bench = Self { role, device, now, asked: 0, held_back: 0 };
        bench.run_until(Duration::from_secs(5), |bench| bench.state() != SlotState::Probing);
        assert_eq!(bench.state(), SlotState::Free);
        bench
    }

    fn state(&self) -> SlotState {
        self.role.inventory().next().unwrap().state
    }

    fn turn(&mut self) {
        let at = |now: Instant| Duration::from_nanos(now.as_nanos());
        self.role.handle_timeout(self.now);
        self.device.handle_timeout(at(self.now));
        let mut buf = [0; MAX_TLP];
        for _ in 0..1000 {
            let mut moved = false;
            while let Some(signal) = self.role.poll_signal(slot()) {
                let kind = match signal {
                    SlotSignal::HotReset => ResetKind::HotReset,
                    SlotSignal::Perst { asserted } => ResetKind::Perst { asserted },
                };
                self.device.handle_reset(at(self.now), kind);
            }
            if let Some(length) =
                self.role.poll_tlp(self.now, slot(), ClassSet::ALL, &mut buf[..TLP_BUFFER])
            {
                self.device.handle_tlp(at(self.now), &buf[..length]);
                moved = true;
            }
            let room = self.role.can_take(slot());
            let classes = Class::ALL.into_iter().filter(|class| room.contains(*class));
            let classes = classes.fold(Classes::NONE, Classes::with);
            if let Some(length) = self.device.poll_tlp_of(at(self.now), classes, &mut buf) {
                // It said that it would take one of these; of reads one at a time, but it may say that
                // it takes one more, since this one was refused.
                self.role.handle_tlp(self.now, slot(), &buf[..length]).unwrap();
                let class = Packet::new_checked(&buf[..length]).ok().and_then(|tlp| tlp.class());
                if class == Some(Class::NonPosted) && self.state() == SlotState::Releasing {
                    if self.role.can_take(slot()).contains(Class::NonPosted) {
                        self.role.handle_tlp(self.now, slot(), &buf[..length]).unwrap();
                    } else {
                        self.held_back += 1;
                    }
                }
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    fn run_until(&mut self, bound: Duration, over: impl Fn(&Self) -> bool) {
        let end = self.now + bound;
        self.turn();
        while !over(self) {
            assert!(self.now < end, "not within {bound:?}");
            let step = Instant::from_nanos(self.now.as_nanos() + 50_000_000);
            let device = self.device.poll_timeout();
            let device = device.map(|at| Instant::from_nanos(at.as_nanos() as u64));
            let next = self.role.poll_timeout().into_iter().chain(device).min().unwrap_or(step);
            self.now = next.clamp(Instant::from_nanos(self.now.as_nanos() + 1000), step);
            self.turn();
        }
    }

    fn ask(&mut self, request: Request) -> Result<Reply, ControlError> {
        self.asked += 1;
        let id = OperationId(self.asked);
        self.role.handle_control(self.now, id, Term(1), &request);
        let end = self.now + Duration::from_secs(30);
        loop {
            while let Some(message) = self.role.poll_control() {
                match message {
                    FromProxy::Response { id: of, result } if of == id => return result,
                    _ => {}
                }
            }
            assert!(self.now < end, "no answer");
            self.now = Instant::from_nanos(self.now.as_nanos() + 1_000_000);
            self.turn();
        }
    }

    fn erase(&mut self, request: &EraseRequest) -> Result<Erasure, ControlError> {
        match self.ask(Request::Erase(request.clone()))? {
            Reply::Erasure(code) => Ok(code.try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Asks again until it has ended.
    fn erased(&mut self, request: &EraseRequest) -> Erasure {
        let end = self.now + Duration::from_secs(120);
        loop {
            match self.erase(request).unwrap() {
                Erasure::Running(permille) => assert!(permille <= 1000),
                ended => return ended,
            }
            assert!(self.now < end, "it does not end");
            self.run_until(Duration::from_secs(1), |_| true);
            self.now = Instant::from_nanos(self.now.as_nanos() + 20_000_000);
        }
    }
}

#[test]
fn a_drive_is_sanitized_or_formatted_by_the_first_way_that_it_offers() {
    use EraseMethod::*;
    for (wanted, taken) in [
        (&[SanitizeCrypto, SanitizeBlock, FormatUser][..], SanitizeBlock),
        (&[FormatUser, SanitizeBlock], FormatUser),
        (&[SanitizeOverwrite, FormatCrypto, FormatUser], FormatUser),
    ] {
        let (first, second) = (Shared::full(), Shared::full());
        let images: Vec<(Box<dyn Image>, BlockSize)> = vec![
            (Box::new(first.clone()), BlockSize::B512),
            (Box::new(second.clone()), BlockSize::B4096),
        ];
        let mut bench = Bench::new(drive(images));
        assert_eq!(bench.erased(&request(3, wanted)), Erasure::Done(taken), "{wanted:?}");
        assert!(first.is_erased() && second.is_erased());
        assert_eq!(bench.state(), SlotState::Free);
        assert!(bench.held_back > 2, "it reads commands");
        // The same again is the same answer, and erases nothing.
        first.image.lock().unwrap().write(0, &[1]).unwrap();
        assert_eq!(bench.erase(&request(3, wanted)), Ok(Erasure::Done(taken)));
        assert!(!first.is_erased());
        // Another name is another erasure.
        assert_eq!(bench.erased(&request(4, wanted)), Erasure::Done(taken));
        assert!(first.is_erased());
        let stale = Epoch::new(0, 4).unwrap();
        assert_eq!(bench.erase(&request(2, wanted)), Err(ControlError::StaleEpoch(stale)));
    }
}

fn one(image: &Shared) -> impl Device + use<> {
    drive(vec![(Box::new(image.clone()), BlockSize::B512)])
}

#[test]
fn while_it_goes_on_nothing_else_gets_the_device() {
    let image = Shared { ends: false, ..Shared::full() };
    let mut bench = Bench::new(one(&image));
    let erase = request(1, &[EraseMethod::SanitizeBlock]);
    assert_eq!(bench.erase(&erase), Ok(Erasure::Running(0)));
    bench.run_until(Duration::from_secs(5), |bench| bench.state() == SlotState::Releasing);
    let host = NodeId::new(9).unwrap();
    let epoch = key(2).epoch;
    let windows = [Window::everything(host, PathSet::FIRST, epoch)].into_iter().collect();
    let binding =
        SlotBinding { key: key(2), host, path_set: PathSet::FIRST, share: Share::EVEN, windows };
    assert_eq!(bench.ask(Request::BindSlot(binding)), Err(ControlError::Busy));
    assert_eq!(bench.erase(&request(2, &[EraseMethod::FormatUser])), Err(ControlError::Busy));
    // It never ends by itself: the bound ends it, and the slot is not lent again by itself.
    assert_eq!(bench.erased(&erase), Erasure::Failed(EraseFailure::TooLong));
    assert_eq!(bench.state(), SlotState::Quarantined);
    assert_eq!(bench.ask(Request::Recover(slot())), Ok(Reply::Slot(SlotState::Free)));
}

/// A sanitize operation goes on over resets and power cycles: a proxy that begins anew finds it
/// under way.
#[test]
fn a_sanitize_that_goes_on_is_waited_for() {
    use EraseMethod::*;
    for (wanted, anew) in [(SanitizeBlock, false), (FormatUser, true)] {
        let image = Shared::full();
        let mut bench = Bench::new(one(&image));
        bench.erase(&request(1, &[SanitizeBlock])).unwrap();
        image.holds.store(true, Ordering::Relaxed);
        while !matches!(bench.erase(&request(1, &[SanitizeBlock])), Ok(Erasure::Running(1..))) {
            bench.run_until(Duration::from_secs(1), |_| true);
            bench.now = Instant::from_nanos(bench.now.as_nanos() + 20_000_000);
        }
        let Bench { device, now, .. } = bench;
        let mut bench = Bench::after(device, now);
        let erase = request(2, &[wanted]);
        for _ in 0..50 {
            assert!(matches!(bench.erase(&erase), Ok(Erasure::Running(_))), "{wanted:?}");
            bench.now = Instant::from_nanos(bench.now.as_nanos() + 50_000_000);
            bench.run_until(Duration::from_secs(1), |_| true);
        }
        // Who wants the slot back meanwhile is not kept waiting.
        let asked = bench.ask(Request::UnbindSlot(key(1)));
        assert_eq!(asked, Ok(Reply::Slot(SlotState::Releasing)));
        image.holds.store(false, Ordering::Relaxed);
        assert_eq!(bench.erased(&erase), Erasure::Done(wanted), "anew: {anew}");
        assert!(image.is_erased());
        assert_eq!(bench.state(), SlotState::Free);
    }
}

#[test]
fn what_cannot_be_erased_says_why() {
    let image = Shared { fails: true, ..Shared::full() };
    let mut bench = Bench::new(one(&image));
    let sanitize_failed = Erasure::Failed(EraseFailure::Status(0x1c));
    assert_eq!(bench.erased(&request(1, &[EraseMethod::SanitizeBlock])), sanitize_failed);
    assert_eq!(bench.state(), SlotState::Quarantined);

    let image = Shared::full();
    let mut bench = Bench::new(one(&image));
    let not_offered = Erasure::Failed(EraseFailure::NotOffered);
    assert_eq!(bench.erased(&request(1, &[EraseMethod::SanitizeCrypto])), not_offered);
    assert_eq!(bench.erased(&request(2, &[])), not_offered);
    assert_eq!(bench.state(), SlotState::Free, "nothing was begun");
    assert!(!image.is_erased());
    let other = EraseRequest { serial: 5, ..request(3, &[EraseMethod::FormatUser]) };
    assert_eq!(bench.erase(&other), Err(ControlError::SlotEmpty(slot())));
    bench.run_until(Duration::from_secs(1), |_| true);
    assert!(!image.is_erased(), "it is another device");

    let device = Accelerator::device(accelerator::Config::default()).unwrap();
    let mut bench = Bench::new(device);
    let serial = bench.role.inventory().next().unwrap().serial;
    let asked = EraseRequest { serial, ..request(1, &EraseMethod::ALL) };
    assert_eq!(bench.erased(&asked), Erasure::Failed(EraseFailure::NoMeans));
    assert_eq!(bench.state(), SlotState::Free);
}

/// A controller whose TLPs are changed, lost or doubled on the way, by a script that goes round.
struct Spoiled<D> {
    device: D,
    script: Vec<u8>,
    at: usize,
    /// Spoils from the so-many-th TLP on.
    after: usize,
}

impl<D: Device> Device for Spoiled<D> {
    fn handle_tlp(&mut self, now: Duration, tlp: &[u8]) {
        self.device.handle_tlp(now, tlp);
    }

    fn can_take(&self, class: Class) -> bool {
        self.device.can_take(class)
    }

    fn poll_tlp_of(&mut self, now: Duration, classes: Classes, buf: &mut [u8]) -> Option<usize> {
        let length = self.device.poll_tlp_of(now, classes, buf)?;
        self.at += 1;
        if self.at > self.after {
            let spoil = self.script[self.at % self.script.len()];
            if spoil >= 0x40 {
                let place = usize::from(spoil) * 7 % length;
                buf[place] ^= spoil;
            }
        }
        Some(length)
    }

    fn handle_reset(&mut self, now: Duration, kind: ResetKind) {
        self.device.handle_reset(now, kind);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.device.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.device.handle_timeout(now);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.device.counters()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a controller says, an erasure ends within its bound, and the slot comes to rest.
    #[test]
    fn a_controller_that_lies_is_an_end_in_time(
        script in prop::collection::vec(any::<u8>(), 1..40),
        format in any::<bool>(),
    ) {
        let image = Shared::full();
        // What the probe reads is read well.
        let mut bench = Bench::new(Spoiled { device: one(&image), script, at: 0, after: 200 });
        bench.device.after = bench.device.at;
        let method = if format { EraseMethod::FormatUser } else { EraseMethod::SanitizeBlock };
        let asked = request(1, &[method]);
        let began = bench.now;
        let ended = bench.erased(&asked);
        prop_assert!(bench.now.saturating_since(began) < Duration::from_secs(100));
        if let Erasure::Done(done) = ended {
            prop_assert_eq!(done, method);
        }
        prop_assert_ne!(bench.state(), SlotState::Releasing);
    }
}
