//! A thread for what can take long, whose work can be taken back.
//!
//! Work is done in steps. Before each one the thread asks, under the same lock under which work is
//! taken back, whether it is still wanted: so that after that at most the one step under way goes
//! on, and it is known whether there is one. The lock is never held over a step.

use super::command::MAX_COMMANDS;
use super::image::{SlowOp, Zeroing};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// Slow operations that an image has at a time: one of each command that the controller works on,
/// the flush of a shutdown, and one given up that is still under way. Further ones are refused.
pub const SLOW_OPS: usize = MAX_COMMANDS + 2;

/// Most bytes that one step zeros. What is given up goes on for that long at most.
pub(super) const STEP_BYTES: u64 = 16 << 20;

/// What the thread does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make everything durable that was written.
    Flush,
    /// Zero at most [`STEP_BYTES`].
    Zero { offset: u64, len: u64, how: Zeroing },
}

/// An operation that was not taken because [`SLOW_OPS`] are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image has {SLOW_OPS} operations and takes no more until one ends")]
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

#[derive(Debug)]
struct Running {
    id: u64,
    fate: Fate,
    /// Whether the step under way changes what blocks read as.
    writing: bool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, SlowOp)>,
    running: Option<Running>,
    ended: VecDeque<(u64, io::Result<()>)>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread and its work, in the order in which it was started.
#[derive(Debug)]
pub(super) struct Background {
    shared: Arc<Shared>,
}

impl Background {
    /// Starts the thread, which does its steps with `carry_out`.
    pub(super) fn spawn(
        carry_out: impl FnMut(Step) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        thread::Builder::new().name("nvme-image".into()).spawn(move || its.serve(carry_out))?;
        Ok(Self { shared })
    }

    /// See [`Image::start`](super::image::Image::start).
    pub(super) fn start(&self, id: u64, op: SlowOp) -> Result<(), Full> {
        let mut state = self.shared.lock();
        let running = usize::from(state.running.is_some());
        if state.waiting.len() + running + state.ended.len() >= SLOW_OPS {
            return Err(Full);
        }
        state.waiting.push_back((id, op));
        self.shared.changed.notify_one();
        Ok(())
    }

    /// See [`Image::finished`](super::image::Image::finished).
    pub(super) fn finished(&self) -> Option<(u64, io::Result<()>)> {
        self.shared.lock().ended.pop_front()
    }

    /// See [`Image::cancel`](super::image::Image::cancel).
    pub(super) fn cancel(&self, id: u64) {
        let state = &mut *self.shared.lock();
        let waiting = state.waiting.len();
        state.waiting.retain(|&(other, _)| other != id);
        for _ in state.waiting.len()..waiting {
            state.ended.push_back((id, Err(cancelled())));
        }
        if let Some(running) = state.running.as_mut().filter(|running| running.id == id)
            && running.fate == Fate::Wanted
        {
            running.fate = Fate::Cancelled;
        }
    }

    /// See [`Image::abandon`](super::image::Image::abandon).
    pub(super) fn abandon(&self) {
        let mut state = self.shared.lock();
        state.waiting.clear();
        state.ended.clear();
        if let Some(running) = &mut state.running {
            running.fate = Fate::Abandoned;
        }
    }

    /// See [`Image::is_settled`](super::image::Image::is_settled).
    pub(super) fn is_settled(&self) -> bool {
        let state = self.shared.lock();
        !state.running.as_ref().is_some_and(|r| r.fate == Fate::Abandoned && r.writing)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.abandon();
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

fn cancelled() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "it was cancelled")
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }

    fn serve(&self, mut carry_out: impl FnMut(Step) -> io::Result<()>) {
        while let Some((id, op)) = self.next() {
            let result = steps(&op).try_for_each(|step| {
                if self.begin(step) { carry_out(step) } else { Err(cancelled()) }
            });
            self.end(id, result);
        }
    }

    /// What is to be done next; nothing when it is over.
    fn next(&self) -> Option<(u64, SlowOp)> {
        let idle = |state: &mut State| !state.closed && state.waiting.is_empty();
        let mut state = self.changed.wait_while(self.lock(), idle).expect("as of taking the lock");
        let (id, op) = state.waiting.pop_front()?;
        state.running = Some(Running { id, fate: Fate::Wanted, writing: false });
        Some((id, op))
    }

    /// Whether that step is to be done; if so, it is under way.
    fn begin(&self, step: Step) -> bool {
        let mut state = self.lock();
        let running = state.running.as_mut().expect("steps are of what runs");
        let wanted = running.fate == Fate::Wanted;
        running.writing = wanted && step != Step::Flush;
        wanted
    }

    fn end(&self, id: u64, result: io::Result<()>) {
        let mut state = self.lock();
        let running = state.running.take().expect("what ends was running");
        if running.fate != Fate::Abandoned {
            state.ended.push_back((id, result));
        }
    }
}

/// What an operation consists of.
fn steps(op: &SlowOp) -> impl Iterator<Item = Step> + '_ {
    let (extents, how, flush) = match op {
        SlowOp::Flush => (&[][..], Zeroing::Kept, true),
        SlowOp::Zero { extents, how, flush } => (&extents[..], *how, *flush),
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
    use std::sync::mpsc;

    const MB: u64 = 1 << 20;

    fn zero(mb: u64) -> SlowOp {
        SlowOp::zero(0..mb * MB, Zeroing::Deallocated, false)
    }

    /// A thread that tells each step and waits to be let on.
    fn gated() -> (Background, mpsc::Receiver<Step>, mpsc::Sender<()>) {
        let (told, steps) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let background = Background::spawn(move |step| {
            told.send(step).ok();
            may_go.recv().map_err(io::Error::other)
        });
        (background.unwrap(), steps, go)
    }

    fn wait(background: &Background) -> (u64, io::Result<()>) {
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
        let op = SlowOp::Zero { extents, how: Zeroing::Deallocated, flush: true };
        let step = |at: u64, mb: u64| Step::Zero {
            offset: at * MB,
            len: mb * MB,
            how: Zeroing::Deallocated,
        };
        let want = [step(5, 1), step(100, 16), step(116, 16), step(132, 1), Step::Flush];
        assert_eq!(steps(&op).collect::<Vec<_>>(), want);
        assert_eq!(steps(&SlowOp::Flush).collect::<Vec<_>>(), [Step::Flush]);
    }

    #[test]
    fn what_is_abandoned_does_no_further_step_and_is_not_heard_of() {
        let (background, steps, go) = gated();
        background.start(1, zero(64)).unwrap();
        background.start(2, zero(1)).unwrap();
        steps.recv().unwrap();
        background.abandon();
        assert!(!background.is_settled(), "a step is under way");
        background.start(3, SlowOp::Flush).unwrap();
        go.send(()).unwrap();
        assert_eq!(steps.recv(), Ok(Step::Flush), "neither the rest of the first nor the second");
        assert!(background.is_settled());
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (3, Ok(()))));
        assert_eq!(ids(&background), []);
    }

    #[test]
    fn an_abandoned_flush_is_nothing_to_wait_for() {
        let (background, steps, _go) = gated();
        background.start(1, SlowOp::Flush).unwrap();
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
        assert!(matches!(wait(&background), (3, Ok(()))));
        assert_eq!(steps.try_iter().count(), 1, "of the third");
    }

    #[test]
    fn more_than_the_limit_is_refused_until_something_ends() {
        let (background, steps, go) = gated();
        for id in 0..SLOW_OPS as u64 {
            background.start(id, SlowOp::Flush).unwrap();
        }
        assert_eq!(background.start(7777, SlowOp::Flush), Err(Full));
        steps.recv().unwrap();
        go.send(()).unwrap();
        assert!(matches!(wait(&background), (0, Ok(()))));
        assert_eq!(background.start(7777, SlowOp::Flush), Ok(()));
        assert_eq!(background.start(7778, SlowOp::Flush), Err(Full));
    }
}
