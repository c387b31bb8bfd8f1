//! Threads for what may wait for storage, whose work can be taken back.
//!
//! Some read and write blocks, those of which none writes what another one has to do with beside each
//! other. One does what takes long, in the order in which it was started and in steps. Before each
//! step it asks, under the same lock under which work is taken back, whether it is still wanted: so that
//! after that at most the one step under way goes on, and it is known whether there is one. A read or
//! write is one step. The lock is never held over a step.

use super::command::MAX_COMMANDS;
use super::image::{Ended, ImageOp, Zeroing};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// Operations that an image has at a time: one of each command that the controller works on, the
/// flush of a shutdown, and a sanitize operation. Further ones are refused. What was given up is not
/// counted: of that, only what is under way is still there.
pub const MAX_OPS: usize = MAX_COMMANDS + 2;

/// Reads and writes that are under way at a time.
const TRANSFERS: usize = 4;

/// Most bytes that one step zeros. What is given up goes on for that long at most.
pub(super) const STEP_BYTES: u64 = 16 << 20;

/// What is behind an image; several threads use it at a time.
pub(super) trait Storage: Send + Sync + 'static {
    /// Reads `buf.len()` bytes from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes at `offset`.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Does a step of what takes long.
    fn step(&self, step: Step) -> io::Result<()>;
}

/// What the thread for what takes long does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make everything durable that was written.
    Flush,
    /// Zero at most [`STEP_BYTES`].
    Zero { offset: u64, len: u64, how: Zeroing },
}

/// An operation that was not taken because [`MAX_OPS`] are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image has {MAX_OPS} operations and takes no more until one ends")]
pub struct Full;

/// Whether what runs is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wanted,
    /// Ends before its next step, as failed.
    Cancelled,
    /// Ends before its next step, and nobody hears of it.
    Abandoned,
}

/// What was started. Each has a number of its own, in the order in which they were.
#[derive(Debug)]
struct Waiting {
    number: u64,
    id: u64,
    op: ImageOp,
    /// Flushes that had failed by then.
    failed_flushes: u64,
}

/// The bytes that a transfer reads or writes: none of what takes long.
#[derive(Clone, Debug)]
struct Moves {
    bytes: Range<u64>,
    writes: bool,
}

impl Moves {
    fn new(op: &ImageOp) -> Self {
        let (offset, len, writes) = match op {
            ImageOp::Read { offset, len } => (*offset, *len, false),
            ImageOp::Write { offset, data } => (*offset, data.len(), true),
            ImageOp::Flush | ImageOp::Zero { .. } => (0, 0, false),
        };
        Self { bytes: offset..offset + len as u64, writes }
    }

    /// Whether one of two is not to be made beside the other: a block is read as it was before a write
    /// or as it is after it (NVM Express 1.4 section 6.4, atomic write unit).
    fn conflicts(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.bytes, &other.bytes);
        (self.writes || other.writes) && ours.start < theirs.end && theirs.start < ours.end
    }
}

#[derive(Debug)]
struct Running {
    number: u64,
    id: u64,
    failed_flushes: u64,
    fate: Fate,
    moves: Moves,
    /// Bytes that are still to be zeroed.
    left: u64,
    /// Whether the step under way changes what blocks read as.
    writing: bool,
}

#[derive(Debug, Default)]
struct State {
    started: u64,
    transfers: VecDeque<Waiting>,
    slow: VecDeque<Waiting>,
    running: Vec<Running>,
    ended: VecDeque<Ended>,
    /// Linux tells an open file once that what was written to it could not be stored, and its next
    /// flush is good: what is lost is known here alone, whoever that flush was for.
    failed_flushes: u64,
    /// Of these, how many [`Background::take_loss`] has told of.
    told_flushes: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    transfers_changed: Condvar,
    slow_changed: Condvar,
}

/// The threads and their work.
#[derive(Debug)]
pub(super) struct Background {
    shared: Arc<Shared>,
}

impl Background {
    /// Starts the threads.
    pub(super) fn spawn(storage: impl Storage) -> io::Result<Self> {
        let this = Self { shared: Arc::default() };
        let storage = Arc::new(storage);
        // What cannot all be started is closed by dropping it.
        for lane in [Lane::Slow].into_iter().chain([Lane::Transfers; TRANSFERS]) {
            let (shared, storage) = (Arc::clone(&this.shared), Arc::clone(&storage));
            let thread = thread::Builder::new().name("nvme-image".into());
            thread.spawn(move || shared.serve(lane, &*storage))?;
        }
        Ok(this)
    }

    /// See [`Image::start`](super::image::Image::start).
    pub(super) fn start(&self, id: u64, op: ImageOp) -> Result<(), Full> {
        let state = &mut *self.shared.lock();
        if state.count() >= MAX_OPS {
            return Err(Full);
        }
        state.started += 1;
        let transfers = op.is_transfer();
        let failed_flushes = state.failed_flushes;
        let waiting = Waiting { number: state.started, id, op, failed_flushes };
        if transfers {
            state.transfers.push_back(waiting);
            self.shared.transfers_changed.notify_one();
        } else {
            state.slow.push_back(waiting);
            self.shared.slow_changed.notify_one();
        }
        Ok(())
    }

    /// See [`Image::finished`](super::image::Image::finished).
    pub(super) fn finished(&self) -> Option<Ended> {
        self.shared.lock().ended.pop_front()
    }

    /// See [`Image::left`](super::image::Image::left).
    pub(super) fn left(&self, id: u64) -> u64 {
        let state = self.shared.lock();
        let waiting = state.slow.iter().filter(|waiting| waiting.id == id);
        let heard_of = |running: &&Running| running.id == id && running.fate != Fate::Abandoned;
        let running = state.running.iter().filter(heard_of).map(|running| running.left);
        waiting.map(|waiting| waiting.op.zeroes()).chain(running).sum()
    }

    /// See [`Image::take_loss`](super::image::Image::take_loss).
    pub(super) fn take_loss(&self) -> bool {
        let state = &mut *self.shared.lock();
        std::mem::replace(&mut state.told_flushes, state.failed_flushes) != state.failed_flushes
    }

    /// See [`Image::failed_flushes`](super::image::Image::failed_flushes).
    pub(super) fn failed_flushes(&self) -> u64 {
        self.shared.lock().failed_flushes
    }

    /// Whether a transfer of these bytes would have nothing to wait for: none that it may not be made
    /// beside, and no other for want of a thread.
    pub(super) fn lets_pass(&self, bytes: Range<u64>, writes: bool) -> bool {
        let state = self.shared.lock();
        let moves = Moves { bytes, writes };
        state.transfers.is_empty() && !state.running.iter().any(|r| r.moves.conflicts(&moves))
    }

    /// See [`Image::cancel`](super::image::Image::cancel).
    pub(super) fn cancel(&self, id: u64) {
        let state = &mut *self.shared.lock();
        for waiting in [&mut state.transfers, &mut state.slow] {
            let before = waiting.len();
            waiting.retain(|other| other.id != id);
            for _ in waiting.len()..before {
                state.ended.push_back((id, Err(cancelled())));
            }
        }
        for running in state.running.iter_mut().filter(|running| running.id == id) {
            match running.fate {
                Fate::Wanted if running.writing => running.fate = Fate::Cancelled,
                // It changes nothing, however long it goes on.
                Fate::Wanted => {
                    running.fate = Fate::Abandoned;
                    state.ended.push_back((id, Err(cancelled())));
                }
                Fate::Cancelled | Fate::Abandoned => {}
            }
        }
        self.shared.something_is_gone(state);
    }

    /// See [`Image::abandon`](super::image::Image::abandon).
    pub(super) fn abandon(&self) {
        let mut state = self.shared.lock();
        state.transfers.clear();
        state.slow.clear();
        state.ended.clear();
        state.running.iter_mut().for_each(|running| running.fate = Fate::Abandoned);
    }

    /// See [`Image::is_settled`](super::image::Image::is_settled).
    pub(super) fn is_settled(&self) -> bool {
        let state = self.shared.lock();
        !state.running.iter().any(|running| running.fate == Fate::Abandoned && running.writing)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.abandon();
        self.shared.lock().closed = true;
        self.shared.transfers_changed.notify_all();
        self.shared.slow_changed.notify_all();
    }
}

fn cancelled() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "it was cancelled")
}

pub(super) fn lost_beside() -> io::Error {
    io::Error::other("a flush that was made meanwhile could not store what was written before")
}

/// Which work a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Transfers,
    Slow,
}

impl State {
    /// Operations that somebody will hear of.
    fn count(&self) -> usize {
        let running = self.running.iter().filter(|running| running.fate != Fate::Abandoned);
        self.transfers.len() + self.slow.len() + running.count() + self.ended.len()
    }

    /// The place of what that lane can begin.
    fn due(&self, lane: Lane) -> Option<usize> {
        match lane {
            Lane::Transfers => (0..self.transfers.len()).find(|&place| self.may_move(place)),
            Lane::Slow => self.may_be_slow(self.slow.front()?).then_some(0),
        }
    }

    /// Whether a transfer has none before it that it may not be made beside.
    fn may_move(&self, place: usize) -> bool {
        let moves = Moves::new(&self.transfers[place].op);
        let mut waiting = self.transfers.iter().take(place).map(|other| Moves::new(&other.op));
        !self.running.iter().any(|other| other.moves.conflicts(&moves))
            && !waiting.any(|other| other.conflicts(&moves))
    }

    /// What zeros blocks comes behind every transfer that was started before it: after a format or a
    /// sanitize operation nothing is written, and nothing comes from a read, that was there before. A
    /// read that nobody will hear of is not waited for.
    fn may_be_slow(&self, slow: &Waiting) -> bool {
        let waited_for = |running: &&Running| {
            !running.moves.bytes.is_empty() && (running.writing || running.fate != Fate::Abandoned)
        };
        let running = self.running.iter().filter(waited_for).map(|running| running.number);
        let mut before = self.transfers.iter().map(|waiting| waiting.number).chain(running);
        !matches!(slow.op, ImageOp::Zero { .. }) || before.all(|number| number > slow.number)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }

    /// Others may have waited for it.
    fn something_is_gone(&self, state: &State) {
        if !state.transfers.is_empty() {
            self.transfers_changed.notify_all();
        }
        if !state.slow.is_empty() {
            self.slow_changed.notify_one();
        }
    }

    fn serve(&self, lane: Lane, storage: &impl Storage) {
        while let Some((number, op)) = self.next(lane) {
            let result = match op {
                ImageOp::Read { offset, len } => {
                    let mut data = vec![0; len];
                    storage.read(offset, &mut data).map(|()| data)
                }
                ImageOp::Write { offset, data } => {
                    storage.write(offset, &data).map(|()| Vec::new())
                }
                ImageOp::Flush | ImageOp::Zero { .. } => {
                    let step = |step| match self.begin(number, step) {
                        true if step == Step::Flush => self.flushed(number, storage.step(step)),
                        true => storage.step(step).map(|()| self.stepped(number, step)),
                        false => Err(cancelled()),
                    };
                    steps(&op).try_for_each(step).map(|()| Vec::new())
                }
            };
            self.end(number, result);
        }
    }

    /// What is to be done next, and its number; nothing when it is over.
    fn next(&self, lane: Lane) -> Option<(u64, ImageOp)> {
        let changed = match lane {
            Lane::Transfers => &self.transfers_changed,
            Lane::Slow => &self.slow_changed,
        };
        let idle = |state: &mut State| !state.closed && state.due(lane).is_none();
        let mut state = changed.wait_while(self.lock(), idle).expect("as of taking the lock");
        let place = state.due(lane)?;
        let waiting = match lane {
            Lane::Transfers => &mut state.transfers,
            Lane::Slow => &mut state.slow,
        };
        let Waiting { number, id, op, failed_flushes } = waiting.remove(place)?;
        // Who zeros stores its own zeros: what failed before it began is none of its.
        let failed_flushes =
            if op == ImageOp::Flush { failed_flushes } else { state.failed_flushes };
        let moves = Moves::new(&op);
        let (fate, writing, left) = (Fate::Wanted, moves.writes, op.zeroes());
        state.running.push(Running { number, id, failed_flushes, fate, moves, left, writing });
        Some((number, op))
    }

    /// Whether that step is to be done; if so, it is under way.
    fn begin(&self, number: u64, step: Step) -> bool {
        let mut state = self.lock();
        let running = state.running.iter_mut().find(|running| running.number == number);
        let running = running.expect("steps are of what runs");
        let wanted = running.fate == Fate::Wanted;
        running.writing = wanted && step != Step::Flush;
        wanted
    }

    /// A step that zeros is done.
    fn stepped(&self, number: u64, step: Step) {
        let mut state = self.lock();
        let running = state.running.iter_mut().find(|running| running.number == number);
        if let (Some(running), Step::Zero { len, .. }) = (running, step) {
            running.left -= len;
        }
    }

    /// What comes of a flush step. One that failed is remembered, also if nobody hears of it; and one
    /// that was good stored nothing of what another one, since the operation was started, could not.
    fn flushed(&self, number: u64, result: io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        if result.is_err() {
            state.failed_flushes += 1;
            return result;
        }
        let running = state.running.iter().find(|running| running.number == number);
        let since = running.expect("steps are of what runs").failed_flushes;
        if since == state.failed_flushes { Ok(()) } else { Err(lost_beside()) }
    }

    fn end(&self, number: u64, result: io::Result<Vec<u8>>) {
        let mut state = self.lock();
        let place = state.running.iter().position(|running| running.number == number);
        let running = state.running.swap_remove(place.expect("what ends was running"));
        if running.fate != Fate::Abandoned {
            state.ended.push_back((running.id, result));
        }
        if !running.moves.bytes.is_empty() {
            self.something_is_gone(&state);
        }
    }
}

/// What an operation that takes long consists of.
fn steps(op: &ImageOp) -> impl Iterator<Item = Step> + '_ {
    let (extents, how, flush) = match op {
        ImageOp::Flush => (&[][..], Zeroing::Kept, true),
        ImageOp::Zero { extents, how, flush } => (&extents[..], *how, *flush),
        ImageOp::Read { .. } | ImageOp::Write { .. } => (&[][..], Zeroing::Kept, false),
    };
    let zeros = extents.iter().flat_map(move |extent| {
        (extent.start..extent.end).step_by(STEP_BYTES as usize).map(move |offset| {
            let len = STEP_BYTES.min(extent.end - offset);
            Step::Zero { offset, len, how }
        })
    });
    zeros.chain(flush.then_some(Step::Flush))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    const MB: u64 = 1 << 20;

    fn zero(mb: u64) -> ImageOp {
        ImageOp::zero(0..mb * MB, Zeroing::Deallocated, false)
    }

    /// Storage that tells each step, and each write with its offset, and waits to be let on.
    struct Gated {
        steps: mpsc::Sender<Step>,
        may_step: Mutex<mpsc::Receiver<()>>,
        writes: mpsc::Sender<u64>,
        may_write: Mutex<mpsc::Receiver<()>>,
    }

    /// The test's end of it.
    struct Gate {
        writes: mpsc::Receiver<u64>,
        write: mpsc::Sender<()>,
    }

    impl Storage for Gated {
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            buf.fill(offset as u8);
            Ok(())
        }

        fn write(&self, offset: u64, _data: &[u8]) -> io::Result<()> {
            self.writes.send(offset).ok();
            self.may_write.lock().unwrap().recv().map_err(io::Error::other)
        }

        fn step(&self, step: Step) -> io::Result<()> {
            self.steps.send(step).ok();
            self.may_step.lock().unwrap().recv().map_err(io::Error::other)
        }
    }

    fn gated_storage() -> (Gated, mpsc::Receiver<Step>, mpsc::Sender<()>, Gate) {
        let (told, steps) = mpsc::channel();
        let (go, may_step) = mpsc::channel();
        let (told_write, writes) = mpsc::channel();
        let (write, may_write) = mpsc::channel();
        let (may_step, may_write) = (Mutex::new(may_step), Mutex::new(may_write));
        let storage = Gated { steps: told, may_step, writes: told_write, may_write };
        (storage, steps, go, Gate { writes, write })
    }

    fn gated_with_writes() -> (Background, mpsc::Receiver<Step>, mpsc::Sender<()>, Gate) {
        let (storage, steps, go, gate) = gated_storage();
        (Background::spawn(storage).unwrap(), steps, go, gate)
    }

    fn gated() -> (Background, mpsc::Receiver<Step>, mpsc::Sender<()>) {
        let (background, steps, go, _) = gated_with_writes();
        (background, steps, go)
    }

    fn write(offset: u64) -> ImageOp {
        ImageOp::Write { offset, data: vec![1; 512] }
    }

    fn wait(background: &Background) -> Ended {
        loop {
            if let Some(ended) = background.finished() {
                return ended;
            }
            thread::yield_now();
        }
    }

    fn ids(background: &Background) -> Vec<u64> {
        std::iter::from_fn(|| background.finished()).map(|(id, _)| id).collect()
    }

    #[test]
    fn an_operation_is_its_extents_in_steps_and_then_its_flush() {
        let extents = vec![5 * MB..6 * MB, 100 * MB..133 * MB];
        let op = ImageOp::Zero { extents, how: Zeroing::Deallocated, flush: true };
        let step = |at: u64, mb: u64| Step::Zero {
            offset: at * MB,
            len: mb * MB,
            how: Zeroing::Deallocated,
        };
        let want = [step(5, 1), step(100, 16), step(116, 16), step(132, 1), Step::Flush];
        assert_eq!(steps(&op).collect::<Vec<_>>(), want);
        assert_eq!(steps(&ImageOp::Flush).collect::<Vec<_>>(), [Step::Flush]);
    }

    #[test]
    fn what_is_abandoned_does_no_further_step_and_is_not_heard_of() {
        let (background, steps, go) = gated();
        background.start(1, zero(64)).unwrap();
        background.start(2, zero(1)).unwrap();
        steps.recv().unwrap();
        background.abandon();
        assert!(!background.is_settled(), "a step is under way");
        background.start(3, ImageOp::Flush).unwrap();
        go.send(()).unwrap();
        assert_eq!(steps.recv(), Ok(Step::Flush), "neither the rest of the first nor the second");
        assert!(background.is_settled());
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (3, Ok(_))));
        assert_eq!(ids(&background), []);
    }

    #[test]
    fn an_abandoned_flush_is_nothing_to_wait_for() {
        let (background, steps, _go) = gated();
        background.start(1, ImageOp::Flush).unwrap();
        steps.recv().unwrap();
        background.abandon();
        assert!(background.is_settled());
    }

    #[test]
    fn what_is_cancelled_ends_as_failed_and_the_others_go_on() {
        let (background, steps, go) = gated();
        background.start(1, zero(64)).unwrap();
        background.start(2, zero(1)).unwrap();
        background.start(3, zero(1)).unwrap();
        steps.recv().unwrap();
        background.cancel(2);
        assert!(matches!(background.finished(), Some((2, Err(_)))), "it had not begun");
        background.cancel(1);
        assert!(background.finished().is_none(), "a step of it is under way");
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (1, Err(_))));
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (3, Ok(_))));
        assert_eq!(steps.try_iter().count(), 1, "of the third");
    }

    #[test]
    fn more_than_the_limit_is_refused_until_something_ends() {
        let (background, steps, go) = gated();
        for id in 0..MAX_OPS as u64 {
            background.start(id, ImageOp::Flush).unwrap();
        }
        assert_eq!(background.start(7777, ImageOp::Flush), Err(Full));
        steps.recv().unwrap();
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (0, Ok(_))));
        assert_eq!(background.start(7777, ImageOp::Flush), Ok(()));
        assert_eq!(background.start(7778, ImageOp::Flush), Err(Full));
    }

    #[test]
    fn a_write_that_hangs_holds_up_no_other_and_no_read_or_flush() {
        let (background, steps, go, gate) = gated_with_writes();
        background.start(1, write(512)).unwrap();
        assert_eq!(gate.writes.recv(), Ok(512));
        background.start(2, ImageOp::Read { offset: 7, len: 3 }).unwrap();
        assert!(matches!(wait(&background), (2, Ok(data)) if data == [7; 3]));
        background.start(3, ImageOp::Flush).unwrap();
        assert_eq!(steps.recv(), Ok(Step::Flush));
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (3, Ok(_))));
        background.start(4, write(4096)).unwrap();
        assert_eq!(gate.writes.recv(), Ok(4096), "beside the first");
        (0..2).for_each(|_| gate.write.send(()).unwrap());
        let mut ended = [wait(&background).0, wait(&background).0];
        ended.sort_unstable();
        assert_eq!(ended, [1, 4]);
    }

    #[test]
    fn zeros_come_behind_the_writes_that_were_started_before_them() {
        let (background, steps, go, gate) = gated_with_writes();
        // The last one waits for a thread.
        for id in 0..=TRANSFERS as u64 {
            background.start(id, write(id * 512)).unwrap();
        }
        background.start(100, zero(1)).unwrap();
        background.start(101, write(101 * 512)).unwrap();
        for _ in 0..TRANSFERS {
            gate.writes.recv().unwrap();
            assert!(steps.try_recv().is_err(), "a write is still to come");
            gate.write.send(()).unwrap();
        }
        (0..2).for_each(|_| gate.write.send(()).unwrap());
        steps.recv().unwrap();
        go.send(()).unwrap();
        let mut ended: Vec<u64> = (0..TRANSFERS + 3).map(|_| wait(&background).0).collect();
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2, 3, 4, 100, 101]);
    }

    #[test]
    fn transfers_of_the_same_bytes_are_made_one_after_the_other() {
        let (background, _steps, _go, gate) = gated_with_writes();
        background.start(1, write(0)).unwrap();
        gate.writes.recv().unwrap();
        background.start(2, ImageOp::Read { offset: 511, len: 2 }).unwrap();
        background.start(3, write(512)).unwrap();
        background.start(4, ImageOp::Read { offset: 1024, len: 1 }).unwrap();
        assert!(matches!(wait(&background), (4, Ok(_))), "it has to do with none of them");
        assert!(gate.writes.try_recv().is_err(), "the read is before the second write");
        assert!(!background.lets_pass(1024..1025, false), "others wait");
        gate.write.send(()).unwrap();
        assert_eq!(gate.writes.recv(), Ok(512));
        let mut ended = [wait(&background).0, wait(&background).0];
        ended.sort_unstable();
        assert_eq!(ended, [1, 2]);
        let passes = |bytes, writes| background.lets_pass(bytes, writes);
        assert_eq!([passes(0..512, true), passes(1023..1024, false)], [true, false]);
        gate.write.send(()).unwrap();
        assert_eq!(wait(&background).0, 3);
        assert!(passes(0..2048, true));
    }

    #[test]
    fn what_only_reads_or_flushes_is_cancelled_at_once() {
        let (background, steps, go) = gated();
        background.start(1, ImageOp::Flush).unwrap();
        steps.recv().unwrap();
        background.cancel(1);
        assert!(matches!(background.finished(), Some((1, Err(_)))));
        background.start(2, ImageOp::Flush).unwrap();
        go.send(()).unwrap();
        assert_eq!(steps.recv(), Ok(Step::Flush), "and the thread goes on");
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (2, Ok(_))), "the first is not heard of again");
        assert!(background.is_settled());
    }

    /// Storage whose first flush fails, as Linux tells of lost blocks: once.
    struct FailsOnce(Gated, AtomicBool);

    impl Storage for FailsOnce {
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, buf)
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }

        fn step(&self, step: Step) -> io::Result<()> {
            self.0.step(step)?;
            let fails = step == Step::Flush && !self.1.swap(true, Ordering::Relaxed);
            if fails { Err(io::Error::other("planned")) } else { Ok(()) }
        }
    }

    fn failing_once() -> (Background, mpsc::Receiver<Step>, mpsc::Sender<()>) {
        let (gated, steps, go, _) = gated_storage();
        (Background::spawn(FailsOnce(gated, AtomicBool::new(false))).unwrap(), steps, go)
    }

    #[test]
    fn a_flush_that_failed_and_that_nobody_hears_of_is_not_forgotten() {
        let give_up: [fn(&Background); 2] =
            [Background::abandon, |background| background.cancel(1)];
        for give_up in give_up {
            let (background, steps, go) = failing_once();
            background.start(1, ImageOp::Flush).unwrap();
            steps.recv().unwrap();
            give_up(&background);
            while background.finished().is_some() {}
            go.send(()).unwrap();
            background.start(2, zero(1)).unwrap();
            steps.recv().unwrap();
            go.send(()).unwrap();
            assert!(matches!(wait(&background), (2, Ok(_))), "it is not durable anyway");
            background.start(3, ImageOp::Flush).unwrap();
            steps.recv().unwrap();
            go.send(()).unwrap();
            assert!(matches!(wait(&background), (3, Ok(_))));
            assert_eq!([background.take_loss(), background.take_loss()], [true, false]);
        }
    }

    #[test]
    fn a_flush_that_failed_fails_those_that_were_started_before_it_ended() {
        let (background, steps, go) = failing_once();
        let durable_zero = ImageOp::zero(0..MB, Zeroing::Kept, true);
        for (id, op) in [ImageOp::Flush, durable_zero, ImageOp::Flush].into_iter().enumerate() {
            background.start(id as u64, op).unwrap();
        }
        (0..4).for_each(|_| go.send(()).unwrap());
        for id in 0..3 {
            let (ended, result) = wait(&background);
            assert_eq!(
                (ended, result.is_ok()),
                (id, id == 1),
                "zeros store what they are themselves"
            );
        }
        assert!(background.take_loss());
        assert_eq!(steps.try_iter().count(), 4);
        background.start(3, ImageOp::Flush).unwrap();
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (3, Ok(_))));
        assert!(!background.take_loss());
    }

    #[test]
    fn a_transfer_that_was_given_up_before_it_began_is_not_made() {
        let (background, _steps, _go, gate) = gated_with_writes();
        for id in 0..10 {
            background.start(id, write(id * 512)).unwrap();
        }
        assert_eq!(gate.writes.iter().take(TRANSFERS).count(), TRANSFERS);
        background.abandon();
        (0..10).for_each(|_| gate.write.send(()).unwrap());
        while !background.is_settled() {
            thread::yield_now();
        }
        background.start(11, write(1 << 20)).unwrap();
        assert_eq!(wait(&background).0, 11);
        assert_eq!(gate.writes.try_iter().collect::<Vec<_>>(), [1 << 20]);
    }

    #[test]
    fn zeros_do_not_wait_for_a_write_that_is_cancelled() {
        let (background, steps, go, gate) = gated_with_writes();
        for id in 0..=TRANSFERS as u64 {
            background.start(id, write(id * 512)).unwrap();
        }
        assert_eq!(gate.writes.iter().take(TRANSFERS).count(), TRANSFERS);
        background.start(100, zero(1)).unwrap();
        background.cancel(TRANSFERS as u64);
        assert!(matches!(wait(&background), (4, Err(_))));
        (0..TRANSFERS).for_each(|_| gate.write.send(()).unwrap());
        steps.recv().unwrap();
        go.send(()).unwrap();
        (0..=TRANSFERS).for_each(|_| drop(wait(&background).1.unwrap()));
    }

    #[test]
    fn a_write_that_was_given_up_is_waited_for_and_a_read_is_not() {
        let (background, steps, go, gate) = gated_with_writes();
        background.start(1, write(1)).unwrap();
        gate.writes.recv().unwrap();
        background.abandon();
        assert!(!background.is_settled());
        background.start(2, zero(1)).unwrap();
        background.start(3, ImageOp::Read { offset: 0, len: 1 }).unwrap();
        assert_eq!(wait(&background).0, 3);
        assert!(steps.try_recv().is_err(), "what was given up is still written");
        gate.write.send(()).unwrap();
        steps.recv().unwrap();
        go.send(()).unwrap();
        assert_eq!(wait(&background).0, 2, "and nothing of the first");
        assert!(background.is_settled());
    }
}
