//! What an image does for a command when the command is given up.

use super::super::background::{Background, STEP_BYTES, Step, Storage};
use super::*;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tlp_codec::tlp::CplStatus;

/// Three steps.
const SIZE: u64 = 3 * STEP_BYTES;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// An image in memory whose thread tells each step and waits to be let on. Its blocks are read and
/// written at once, unless its storage is slow: then a write has to be let on, too.
struct Gated {
    storage: Arc<Memory>,
    background: Background,
}

struct Memory {
    bytes: Mutex<Vec<u8>>,
    steps: Mutex<(Sender<Step>, Receiver<()>)>,
    slow: AtomicBool,
    /// Flushes fail.
    failing: AtomicBool,
    /// Writes that wait to be let on.
    waiting: AtomicUsize,
    may_write: Mutex<Receiver<()>>,
}

/// The test's end of it.
struct Gate {
    steps: Receiver<Step>,
    go: Sender<()>,
    storage: Arc<Memory>,
    write: Sender<()>,
}

impl Gate {
    /// Blocks cannot be read and written at once from now on, or can again.
    fn set_slow(&self, slow: bool) {
        self.storage.slow.store(slow, Ordering::Relaxed);
    }
}

impl Storage for Arc<Memory> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.slow.load(Ordering::Relaxed) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.may_write.lock().unwrap().recv().map_err(io::Error::other)?;
        }
        self.bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let (told, may_go) = &*self.steps.lock().unwrap();
        told.send(step).map_err(io::Error::other)?;
        may_go.recv().map_err(io::Error::other)?;
        if step == Step::Flush && self.failing.load(Ordering::Relaxed) {
            return Err(io::Error::other("planned"));
        }
        if let Step::Zero { offset, len, .. } = step {
            self.bytes.lock().unwrap()[offset as usize..(offset + len) as usize].fill(0);
        }
        Ok(())
    }
}

type Images = Vec<(Box<dyn Image>, BlockSize)>;

fn gated() -> (Images, Gate) {
    let (told, steps) = channel();
    let (go, may_go) = channel();
    let (write, may_write) = channel();
    let storage = Arc::new(Memory {
        bytes: Mutex::new(vec![0; SIZE as usize]),
        steps: Mutex::new((told, may_go)),
        slow: AtomicBool::new(false),
        failing: AtomicBool::new(false),
        waiting: AtomicUsize::new(0),
        may_write: Mutex::new(may_write),
    });
    let background = Background::spawn(Arc::clone(&storage)).unwrap();
    let image = Gated { storage: Arc::clone(&storage), background };
    (vec![(Box::new(image), BlockSize::B512)], Gate { steps, go, storage, write })
}

/// What Sanitize Status says: progress, and how the operation stands.
fn sanitize_status(d: &mut Drive) -> (u16, u8) {
    let page = d.log_page(0x81, 512).unwrap();
    (u16::from_le_bytes([page[0], page[1]]), page[2] & 7)
}

#[test]
fn a_sanitize_operation_goes_on_over_resets_and_nothing_is_read_meanwhile() {
    for reset in [Reset::FunctionLevel, Reset::Hot, Reset::Power, Reset::Disable] {
        let (images, gate) = gated();
        let mut d = Drive::with_queues(images, 1);
        assert_eq!(sanitize_status(&mut d).1, 0, "never");
        assert_eq!(d.admin(Sqe::admin(0x84).dword(10, 4)), Err(Status::INVALID_FIELD));
        let sanitize = Sqe::admin(0x84).dword(10, 2);
        assert_eq!(d.admin(sanitize), Ok(0), "it is begun");
        assert_eq!(d.admin(sanitize), Err(Status::SANITIZE_IN_PROGRESS));
        gate.steps.recv().unwrap();
        gate.go.send(()).unwrap();
        let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
        assert_eq!(d.io(1, read), Err(Status::SANITIZE_IN_PROGRESS), "{reset:?}");
        assert_eq!(d.admin(Sqe::admin(0x80).dword(1, 1)), Err(Status::SANITIZE_IN_PROGRESS));
        gate.steps.recv().unwrap();
        assert_eq!(sanitize_status(&mut d), (21845, 2), "a step of three");
        reset.begin(&mut d);
        // Enough for a step that the reset gave up, and for all of them once more.
        for _ in 0..12 {
            gate.go.send(()).unwrap();
        }
        reset.end(&mut d);
        d.wait_for(|d| (sanitize_status(d) == (u16::MAX, 1)).then_some(()));
        let read = d.io_sqe(READ, 0, 8, 0, 4096, 0);
        assert_eq!(d.io(1, read), Ok(0), "{reset:?}");
    }
}

impl Image for Gated {
    fn size(&self) -> u64 {
        SIZE
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        let bytes = offset..offset + buf.len() as u64;
        if self.storage.slow.load(Ordering::Relaxed) || !self.background.lets_pass(bytes, false) {
            return Ok(false);
        }
        self.storage.read(offset, buf).map(|()| true)
    }

    fn write_now(&mut self, offset: u64, data: &[u8]) -> io::Result<bool> {
        if self.storage.slow.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.storage.write(offset, data).map(|()| true)
    }

    fn start(&mut self, id: u64, op: ImageOp) -> Result<(), Full> {
        self.background.start(id, op)
    }

    fn finished(&mut self) -> Option<Ended> {
        self.background.finished()
    }

    fn cancel(&mut self, id: u64) {
        self.background.cancel(id);
    }

    fn abandon(&mut self) {
        self.background.abandon();
    }

    fn is_settled(&self) -> bool {
        self.background.is_settled()
    }

    fn left(&self, id: u64) -> u64 {
        self.background.left(id)
    }

    fn take_loss(&mut self) -> bool {
        self.background.take_loss()
    }

    fn failed_flushes(&self) -> u64 {
        self.background.failed_flushes()
    }
}

impl Drive {
    /// Lets time go by until there is what is looked for.
    fn wait_for<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it never comes");
            self.let_pass();
            std::thread::yield_now();
        }
    }

    fn let_pass(&mut self) {
        self.root.now += Duration::from_millis(1);
        self.root.pump();
    }

    fn is_ready(&mut self) -> bool {
        self.csts() & regs::CSTS_RDY != 0
    }

    fn post_and_ring(&mut self, queue: u16, sqe: Sqe) -> u16 {
        let id = self.post_command(queue, sqe);
        self.ring_all();
        id
    }

    /// Everything but the last block.
    fn zeroing(&mut self, what: Zeroing) -> (u16, Sqe) {
        match what {
            // It has as many blocks as it can, two steps.
            Zeroing::WriteZeroes => (1, Sqe::nvm(WRITE_ZEROES).dword(1, 1).dword(12, 0xffff)),
            Zeroing::Deallocation => {
                let at = DATA + 0x8_0000;
                let blocks = SIZE as u32 / 512 - 1;
                self.root.memory[at..at + 16].fill(0);
                self.root.memory[at + 4..at + 8].copy_from_slice(&blocks.to_le_bytes());
                let sqe = Sqe::nvm(DATASET_MANAGEMENT).dword(1, 1).dword(11, 4);
                (1, sqe.prp1(MEMORY + at as u64))
            }
            Zeroing::Format => (0, Sqe::admin(0x80).dword(1, 1)),
        }
    }

    /// Writes into every step's blocks, and sees that it stays while the image's thread works.
    fn check_that_data_stays(&mut self, queue: u16, gate: &Gate) {
        let places = [0, STEP_BYTES, SIZE - 4096].map(|at| at / 512);
        for (i, slba) in places.into_iter().enumerate() {
            self.root.fill(DATA, 4096, i as u8 + 1);
            let write = self.io_sqe(WRITE, slba, 8, 0, 4096, 0);
            assert_eq!(self.io(queue, write), Ok(0));
        }
        // A flush goes through all that the thread has to do.
        let flush = self.post_and_ring(queue, Sqe::nvm(0x00).dword(1, 1));
        assert_eq!(gate.steps.recv(), Ok(Step::Flush), "nothing else was left to be done");
        gate.go.send(()).unwrap();
        assert_eq!(self.wait_for(|d| d.take_ids(queue).pop()), flush);
        for (i, slba) in places.into_iter().enumerate() {
            let read = self.io_sqe(READ, slba, 8, 0, 4096, 0);
            assert_eq!(self.io(queue, read), Ok(0));
            let came = self.root.memory[DATA..DATA + 4096].to_vec();
            assert!(came == self.root.fill(DATA, 4096, i as u8 + 1), "block {slba} was lost");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Zeroing {
    WriteZeroes,
    Deallocation,
    Format,
}

#[derive(Clone, Copy, Debug)]
enum Reset {
    FunctionLevel,
    Hot,
    /// What a slot's device gets between one tenant and the next.
    Perst,
    Power,
    /// CC.EN to 0, and to 1 when CSTS.RDY has become 0.
    Disable,
    /// CC.EN to 0 and at once to 1.
    HastyDisable,
    Subsystem,
}

impl Reset {
    /// Resets, and sees that it is not over while the image's thread is at it.
    fn begin(self, d: &mut Drive) {
        let now = d.root.now;
        match self {
            Self::FunctionLevel => {
                let control = d.root.config_read(DEVICE_CONTROL) as u16;
                d.root.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_FLR);
            }
            Self::Hot => d.root.device.handle_reset(now, ResetKind::HotReset),
            Self::Perst => {
                d.root.device.handle_reset(now, ResetKind::Perst { asserted: true });
                d.root.device.handle_reset(now, ResetKind::Perst { asserted: false });
            }
            Self::Power => {
                d.root.device.handle_reset(now, ResetKind::Power { on: false });
                d.root.device.handle_reset(now, ResetKind::Power { on: true });
            }
            Self::Disable => d.disable(),
            Self::HastyDisable => {
                d.disable();
                d.ask_to_enable();
            }
            Self::Subsystem => {
                d.root.write32(d.bar + regs::NSSR, regs::NSSR_VALUE);
                d.ask_to_enable();
            }
        }
        for _ in 0..10 {
            d.let_pass();
            match self {
                Self::Disable => assert!(d.is_ready(), "{self:?} is over"),
                Self::HastyDisable | Self::Subsystem => {
                    assert!(!d.is_ready(), "{self:?} is over");
                }
                _ => assert_eq!(d.root.try_config_read(VENDOR_ID), Err(CplStatus::ConfigRetry)),
            }
        }
    }

    /// Waits until it is over and takes the drive into use.
    fn end(self, d: &mut Drive) {
        match self {
            Self::Disable => {
                d.wait_for(|d| (!d.is_ready()).then_some(()));
                d.enable();
            }
            Self::HastyDisable | Self::Subsystem => d.wait_for(|d| d.is_ready().then_some(())),
            _ => {
                d.wait_for(|d| d.root.try_config_read(VENDOR_ID).ok());
                d.restart();
            }
        }
        d.make_queues(1);
    }
}

fn check_reset(reset: Reset) {
    for what in [Zeroing::WriteZeroes, Zeroing::Deallocation, Zeroing::Format] {
        let (images, gate) = gated();
        let mut d = Drive::with_queues(images, 1);
        let (queue, sqe) = d.zeroing(what);
        d.post_and_ring(queue, sqe);
        gate.steps.recv().unwrap();
        // One that has not begun, behind it.
        let (_, sqe) = d.zeroing(Zeroing::Deallocation);
        d.post_and_ring(1, sqe);
        reset.begin(&mut d);
        gate.go.send(()).unwrap();
        reset.end(&mut d);
        d.check_that_data_stays(1, &gate);
    }
}

#[test]
fn nothing_from_before_a_function_level_reset_zeros_what_is_written_after_it() {
    check_reset(Reset::FunctionLevel);
}

#[test]
fn nothing_from_before_a_conventional_reset_zeros_what_is_written_after_it() {
    check_reset(Reset::Hot);
    check_reset(Reset::Perst);
    check_reset(Reset::Power);
}

#[test]
fn nothing_from_before_a_controller_reset_zeros_what_is_written_after_it() {
    check_reset(Reset::Disable);
    check_reset(Reset::HastyDisable);
    check_reset(Reset::Subsystem);
}

#[test]
fn a_flush_from_before_a_reset_is_not_waited_for() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 1);
    d.post_and_ring(1, Sqe::nvm(0x00).dword(1, 1));
    assert_eq!(gate.steps.recv(), Ok(Step::Flush));
    d.disable();
    assert!(!d.is_ready());
    d.enable();
    gate.go.send(()).unwrap();
    d.make_queues(1);
    d.check_that_data_stays(1, &gate);
}

#[test]
fn deleting_a_queue_waits_for_what_its_commands_zero() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 2);
    let (_, zeroes) = d.zeroing(Zeroing::WriteZeroes);
    d.post_and_ring(1, zeroes);
    gate.steps.recv().unwrap();
    let (_, behind) = d.zeroing(Zeroing::Deallocation);
    let behind = d.post_and_ring(1, behind);
    let delete = Sqe::admin(0x00).dword(10, 1);
    d.post_and_ring(0, delete);
    assert_eq!(d.wait_for(|d| d.take_ids(1).pop()), behind, "it had not begun");
    // More that is put into it now is not looked at.
    d.post_and_ring(1, zeroes);
    for _ in 0..10 {
        d.let_pass();
        assert_eq!((d.take(1), d.take(0)), (None, None), "a step is under way");
    }
    assert_eq!(d.admin(delete), Err(Status::INVALID_QUEUE_ID));
    let delete_cq = Sqe::admin(0x04).dword(10, 1);
    assert_eq!(d.admin(delete_cq), Err(Status::INVALID_QUEUE_DELETION));
    gate.go.send(()).unwrap();
    assert_eq!(d.wait_for(|d| d.take(1)), (0, Status::ABORTED_SQ_DELETION));
    assert_eq!(d.wait_for(|d| d.take(0)), (0, Status::SUCCESS));
    assert_eq!(d.admin(delete_cq), Ok(0));
    d.check_that_data_stays(2, &gate);
}

#[test]
fn a_second_shutdown_flushes_behind_the_first() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 1);
    let cc = d.root.read32(d.bar + regs::CC);
    for _ in 0..3 {
        d.root.write32(d.bar + regs::CC, cc | 1 << 14);
        d.root.write32(d.bar + regs::CC, cc);
    }
    let shutdown = |d: &mut Drive| d.csts() & regs::CSTS_SHST;
    for _ in 0..2 {
        assert_eq!(d.wait_for(|_| gate.steps.try_recv().ok()), Step::Flush);
        assert_eq!(shutdown(&mut d), regs::CSTS_SHST_OCCURRING);
        gate.go.send(()).unwrap();
    }
    d.wait_for(|d| (shutdown(d) == regs::CSTS_SHST_COMPLETE).then_some(()));
    assert!(gate.steps.try_recv().is_err(), "one for all that were asked for meanwhile");
}

/// It was fetched before, and its data comes when its blocks are erased already.
#[test]
fn a_write_that_was_under_way_when_a_sanitize_operation_began_writes_nothing() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 1);
    d.root.answers = Answers::Held;
    d.root.fill(DATA, 512, 7);
    let write = d.io_sqe(WRITE, 0, 1, 0, 512, 0);
    d.post_and_ring(1, write);
    d.root.answer(0);
    d.root.pump();
    let held = std::mem::take(&mut d.root.held);
    assert!(!held.is_empty(), "data is asked for");
    d.root.answers = Answers::Split;
    assert_eq!(d.admin(Sqe::admin(0x84).dword(10, 2)), Ok(0));
    for _ in 0..4 {
        gate.steps.recv().unwrap();
        gate.go.send(()).unwrap();
    }
    d.root.held = held;
    while !d.root.held.is_empty() {
        d.root.answer(0);
    }
    d.root.pump();
    assert_eq!(d.wait_for(|d| d.take(1)), (0, Status::SANITIZE_IN_PROGRESS));
    d.wait_for(|d| (sanitize_status(d).1 == 1).then_some(()));
    let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
    assert_eq!(d.io(1, read), Ok(0));
    assert!(d.root.memory[DATA..DATA + 512].iter().all(|byte| *byte == 0));
}

#[test]
fn a_controller_that_was_shut_down_while_it_was_off_can_be_enabled() {
    let (images, gate) = gated();
    let mut d = Drive::on(Config::default(), images);
    let cc = d.root.read32(d.bar + regs::CC);
    d.root.write32(d.bar + regs::CC, cc & !1 | 1 << 14);
    gate.steps.recv().unwrap();
    assert_eq!(d.csts() & regs::CSTS_SHST, regs::CSTS_SHST_OCCURRING);
    d.ask_to_enable();
    gate.go.send(()).unwrap();
    d.wait_for(|d| d.is_ready().then_some(()));
    for _ in 0..10 {
        d.let_pass();
    }
    assert_eq!(d.csts(), regs::CSTS_RDY);
    d.make_queues(1);
}

/// What storage makes wait is read, compared and written all the same, and nothing else waits for it.
#[test]
fn blocks_that_have_to_wait_for_storage_hold_up_nothing_else() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 1);
    gate.set_slow(true);
    d.root.fill(DATA, 4096, 7);
    let write = d.io_sqe(WRITE, 8, 8, 0, 4096, 0);
    let slow = d.post_and_ring(1, write);
    let read = d.io_sqe(READ, 0, 1, 8192, 512, 0);
    let read = d.post_and_ring(1, read);
    assert_eq!(d.wait_for(|d| d.take_ids(1).pop()), read);
    assert!(d.root.memory[DATA + 8192..][..512].iter().all(|byte| *byte == 0));
    assert_eq!(d.admin(Sqe::admin(0x06).dword(10, 1).prp1(MEMORY)), Ok(0));
    assert_eq!(d.take_ids(1), [], "it is not written yet");
    gate.write.send(()).unwrap();
    assert_eq!(d.wait_for(|d| d.take_ids(1).pop()), slow);
    let compare = d.post_and_ring(1, write.opcode(0x05));
    assert_eq!(d.wait_for(|d| d.take_ids(1).pop()), compare);
    d.root.fill(DATA, 4096, 8);
    d.post_and_ring(1, write.opcode(0x05));
    assert_eq!(d.wait_for(|d| d.take(1)), (0, Status::COMPARE_FAILURE));
    let read = d.io_sqe(READ, 8, 8, 8192, 4096, 0);
    let read = d.post_and_ring(1, read);
    assert_eq!(d.wait_for(|d| d.take_ids(1).pop()), read);
    let came = d.root.memory[DATA + 8192..][..4096].to_vec();
    assert!(came == d.root.fill(DATA, 4096, 7));
    let health = d.log_page(2, 512).unwrap();
    assert_eq!((u64_at(&health, 64), u64_at(&health, 80)), (4, 1), "host reads and writes");
}

#[test]
fn a_write_that_waited_is_durable_when_it_has_to_be() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 1);
    gate.set_slow(true);
    let write = d.io_sqe(WRITE, 0, 1, 0, 512, 0).or_dword(12, 1 << 30);
    let write = d.post_and_ring(1, write);
    gate.write.send(()).unwrap();
    assert_eq!(d.wait_for(|_| gate.steps.try_recv().ok()), Step::Flush);
    assert_eq!(d.take_ids(1), [], "it is not durable yet");
    gate.go.send(()).unwrap();
    assert_eq!(d.wait_for(|d| d.take_ids(1).pop()), write);
}

/// The flush that failed may have been for blocks of the write, and the write's own is good then.
#[test]
fn a_write_is_not_durable_when_a_flush_failed_beside_it() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 2);
    let flush = Sqe::nvm(0x00).dword(1, 1);
    d.post_and_ring(2, flush);
    assert_eq!(gate.steps.recv(), Ok(Step::Flush));
    gate.set_slow(true);
    let write = d.io_sqe(WRITE, 0, 1, 0, 512, 0).or_dword(12, 1 << 30);
    for (failing, status) in [(true, Status::WRITE_FAULT), (false, Status::SUCCESS)] {
        gate.storage.failing.store(failing, Ordering::Relaxed);
        d.post_and_ring(1, write);
        if failing {
            gate.go.send(()).unwrap();
            assert_eq!(d.wait_for(|d| d.take(2)), (0, Status::FLUSH_FAULT));
            gate.storage.failing.store(false, Ordering::Relaxed);
        }
        gate.write.send(()).unwrap();
        assert_eq!(d.wait_for(|_| gate.steps.try_recv().ok()), Step::Flush);
        gate.go.send(()).unwrap();
        assert_eq!(d.wait_for(|d| d.take(1)), (0, status));
    }
}

#[test]
fn nothing_from_before_a_reset_is_written_after_it() {
    for reset in [Reset::FunctionLevel, Reset::Perst, Reset::Disable, Reset::HastyDisable] {
        let (images, gate) = gated();
        let mut d = Drive::with_queues(images, 1);
        gate.set_slow(true);
        d.root.fill(DATA, 4096, 9);
        let write = d.io_sqe(WRITE, 0, 8, 0, 4096, 0);
        // The others have to wait for the first one.
        for _ in 0..10 {
            d.post_and_ring(1, write);
        }
        let waiting = || gate.storage.waiting.load(Ordering::Relaxed);
        while waiting() == 0 {
            std::thread::yield_now();
        }
        reset.begin(&mut d);
        gate.write.send(()).unwrap();
        reset.end(&mut d);
        assert_eq!(waiting(), 1, "of what had not begun nothing is written");
        gate.set_slow(false);
        d.check_that_data_stays(1, &gate);
    }
}

#[test]
fn deleting_a_queue_waits_for_what_its_commands_write() {
    let (images, gate) = gated();
    let mut d = Drive::with_queues(images, 2);
    gate.set_slow(true);
    let write = d.io_sqe(WRITE, 0, 8, 0, 4096, 0);
    d.post_and_ring(1, write);
    while gate.storage.waiting.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    d.post_and_ring(0, Sqe::admin(0x00).dword(10, 1));
    for _ in 0..10 {
        d.let_pass();
        assert_eq!((d.take(1), d.take(0)), (None, None), "it may still be written");
    }
    gate.write.send(()).unwrap();
    assert_eq!(d.wait_for(|d| d.take(1)), (0, Status::ABORTED_SQ_DELETION));
    assert_eq!(d.wait_for(|d| d.take(0)), (0, Status::SUCCESS));
    gate.set_slow(false);
    d.check_that_data_stays(2, &gate);
}

/// A format, or a sanitize operation, leaves nothing of a write that it found under way.
#[test]
fn nothing_is_left_of_a_write_that_was_under_way_when_blocks_are_erased() {
    for erase in [Sqe::admin(0x80).dword(1, 1), Sqe::admin(0x84).dword(10, 2)] {
        let (images, gate) = gated();
        let mut d = Drive::with_queues(images, 1);
        gate.set_slow(true);
        d.root.fill(DATA, 4096, 9);
        let write = d.io_sqe(WRITE, 0, 8, 0, 4096, 0);
        d.post_and_ring(1, write);
        d.post_and_ring(0, erase);
        for _ in 0..10 {
            d.let_pass();
            assert!(gate.steps.try_recv().is_err(), "nothing is erased before it is written");
        }
        gate.write.send(()).unwrap();
        for _ in 0..4 {
            gate.steps.recv().unwrap();
            gate.go.send(()).unwrap();
        }
        let bytes = || gate.storage.bytes.lock().unwrap()[..4096].to_vec();
        d.wait_for(|d| (d.take_ids(1).pop().is_some() || !d.take_ids(0).is_empty()).then_some(()));
        d.wait_for(|_| bytes().iter().all(|byte| *byte == 0).then_some(()));
    }
}
