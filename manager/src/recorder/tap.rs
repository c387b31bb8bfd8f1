//! What one proxy records, drained once and handed to everybody who wants some of it.

use super::clock::Reading;
use crate::control::{RequestError, Session};
use proxy_core::control::{ControlError, RecorderPage, Reply, Request};
use proxy_core::limits::MAX_RECORDED;
use proxy_core::recorder::{Entry, Recorded, entries};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::{BindingKey, NodeId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

/// How long a proxy that had nothing more is left alone.
const PAUSE: Duration = Duration::from_millis(5);

/// Pieces that wait for one watcher. When they are so many, the proxy is not asked for more, and
/// loses what it has no room for.
const PIECES: usize = 64;

/// Watchers of one proxy at a time.
const WATCHERS: usize = 16;

/// What a proxy answered once.
#[derive(Debug)]
pub struct Piece {
    /// What was recorded.
    pub entries: Vec<(Entry, Vec<u8>)>,
    /// Where in all that the proxy recorded what is behind it begins.
    pub next: u64,
    /// Where that ended when this was asked for.
    pub end: u64,
    /// What the proxy's clock said when it was asked for.
    pub clock: Reading,
    /// Requests that the proxy sent of each binding that is recorded.
    pub requests: Vec<(NodeId, BindingKey, u64)>,
}

/// When a watcher has all that was recorded until a point in time. A proxy may record faster than it is
/// drained: then there never is a piece with all that there is.
#[derive(Clone, Copy, Debug)]
pub struct Upto {
    until: Instant,
    end: Option<u64>,
}

impl Upto {
    /// All until then.
    pub fn new(until: Instant) -> Self {
        Self { until, end: None }
    }

    /// Whether nothing that was recorded until then comes behind this piece.
    pub fn is_reached(&mut self, piece: &Piece) -> bool {
        if piece.clock.asked >= self.until {
            self.end.get_or_insert(piece.end);
        }
        self.end.is_some_and(|end| piece.next >= end)
    }
}

/// Why nothing can be watched.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// The proxy did not do it.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// Too much is watched already.
    #[error("{MAX_RECORDED} bindings of it, or {WATCHERS} readers, are recorded already")]
    Full,
}

impl WatchError {
    /// Whether the proxy has nothing to record with, as a card may have not.
    pub fn is_for_want_of_a_recorder(&self) -> bool {
        matches!(self, Self::Request(RequestError::Refused(ControlError::NoRecorder)))
    }
}

struct Watcher {
    id: u64,
    wanted: Vec<Recorded>,
    pieces: mpsc::Sender<Arc<Piece>>,
    /// Tells it that the proxy records what it wants.
    started: Option<oneshot::Sender<Result<(), RequestError>>>,
}

#[derive(Default)]
struct State {
    watchers: Vec<Watcher>,
    next: u64,
    /// It recorded something once.
    has_recorder: bool,
}

/// One proxy's.
#[derive(Default)]
pub struct Tap {
    state: Mutex<State>,
    changed: Notify,
}

/// One of those who want to know. Dropping it ends that.
pub struct Watch {
    session: Arc<Session>,
    id: u64,
    pieces: mpsc::Receiver<Arc<Piece>>,
}

impl Watch {
    /// The next piece; `None` when the proxy's connection ended.
    pub async fn next(&mut self) -> Option<Arc<Piece>> {
        tokio::select! {
            biased;
            piece = self.pieces.recv() => piece,
            () = self.session.closed() => None,
        }
    }

    /// The proxy.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let tap = &self.session.tap;
        tap.state().watchers.retain(|watcher| watcher.id != self.id);
        tap.changed.notify_one();
    }
}

/// Begins to watch bindings of a proxy, and waits until it records them.
///
/// # Errors
///
/// When the proxy does not do it.
pub async fn watch(
    session: &Arc<Session>,
    wanted: Vec<Recorded>,
    bound: Duration,
) -> Result<Watch, WatchError> {
    let (pieces, receiver) = mpsc::channel(PIECES);
    let (started, has_started) = oneshot::channel();
    let watch = {
        let mut state = session.tap.state();
        let all = state.watchers.iter().map(|w| &w.wanted).chain([&wanted]);
        if union(all).len() > MAX_RECORDED || state.watchers.len() >= WATCHERS {
            return Err(WatchError::Full);
        }
        state.next += 1;
        let id = state.next;
        state.watchers.push(Watcher { id, wanted, pieces, started: Some(started) });
        Watch { session: session.clone(), id, pieces: receiver }
    };
    session.tap.changed.notify_one();
    let answer = async {
        tokio::select! {
            answer = has_started => answer.unwrap_or(Err(RequestError::Closed)),
            () = session.closed() => Err(RequestError::Closed),
        }
    };
    let bound = bound * 2;
    let answer = session.unheard.within(bound, answer).await;
    answer.unwrap_or(Err(RequestError::TimedOut(bound)))?;
    Ok(watch)
}

/// As if it recorded for this watcher.
#[cfg(test)]
pub(super) fn watched(session: &Arc<Session>) -> Watch {
    let (pieces, receiver) = mpsc::channel(PIECES);
    session.tap.state().watchers.push(Watcher { id: 0, wanted: Vec::new(), pieces, started: None });
    Watch { session: session.clone(), id: 0, pieces: receiver }
}

/// What satisfies all.
fn union<'a>(all: impl Iterator<Item = &'a Vec<Recorded>>) -> Vec<Recorded> {
    let mut list: Vec<Recorded> = Vec::new();
    for wanted in all.flatten() {
        let same = |r: &&mut Recorded| (r.peer, r.binding) == (wanted.peer, wanted.binding);
        let Some(there) = list.iter_mut().find(same) else {
            list.push(*wanted);
            continue;
        };
        there.one_in = match (there.one_in, wanted.one_in) {
            (0, n) | (n, 0) => n,
            (a, b) => a.min(b),
        };
        there.tlps = there.tlps.max(wanted.tlps);
        there.frames = there.frames.max(wanted.frames);
    }
    list
}

impl Tap {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding it")
    }

    /// Whether it is known that this proxy records when it is asked to.
    pub fn has_recorder(&self) -> bool {
        self.state().has_recorder
    }

    /// What is wanted now, and by whom.
    fn wanted(&self) -> (Vec<Recorded>, Vec<u64>) {
        let state = self.state();
        let list = union(state.watchers.iter().map(|w| &w.wanted));
        (list, state.watchers.iter().map(|w| w.id).collect())
    }

    /// Tells those who have not heard it yet how their wish went. Whose was refused is no watcher.
    fn told(&self, whom: &[u64], result: &Result<(), RequestError>) {
        let mut state = self.state();
        for watcher in state.watchers.iter_mut().filter(|w| whom.contains(&w.id)) {
            if let Some(started) = watcher.started.take() {
                let _ = started.send(result.clone());
            }
        }
        if result.is_err() {
            state.watchers.retain(|w| !whom.contains(&w.id));
        }
    }

    pub(super) async fn give(&self, piece: Piece) {
        let piece = Arc::new(piece);
        let senders: Vec<_> = self.state().watchers.iter().map(|w| w.pieces.clone()).collect();
        for sender in senders {
            // Who does not listen any more is about to be taken off the list.
            let _ = sender.send(piece.clone()).await;
        }
    }
}

/// Drains a proxy as long as somebody wants to know and its connection stands. Gives back why it
/// cannot go on.
pub async fn run(session: &Session, bound: Duration) -> RequestError {
    match drain(session, bound).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn drain(session: &Session, bound: Duration) -> Result<Infallible, RequestError> {
    let (mut set, mut position) = (Vec::new(), 0);
    // A page is taken apart and handed on while the next one is under way.
    let mut page: Option<Page> = None;
    loop {
        let (wanted, whom) = session.tap.wanted();
        if wanted != set {
            // Who begins now gets what comes from now on.
            hand_on(session, page.take()).await?;
            let list = wanted.iter().copied().collect();
            let result = session.request_done(Request::SetRecorder(list), bound).await;
            session.tap.told(&whom, &result);
            match result {
                Ok(()) => {
                    session.tap.state().has_recorder |= !wanted.is_empty();
                    set = wanted;
                }
                Err(RequestError::Refused(_)) => continue,
                Err(error) => return Err(error),
            }
        } else {
            session.tap.told(&whom, &Ok(()));
        }
        if set.is_empty() {
            session.tap.changed.notified().await;
            continue;
        }
        let last = page.take();
        let (next, handed) =
            tokio::join!(read(session, position, &set, bound), hand_on(session, last));
        handed?;
        let next = next?;
        position = next.next;
        if next.next == next.end {
            hand_on(session, Some(next)).await?;
            let _ = tokio::time::timeout(PAUSE, session.tap.changed.notified()).await;
        } else {
            page = Some(next);
        }
    }
}

/// What a proxy answered, as it came.
struct Page {
    bytes: Vec<u8>,
    /// Where the one behind it begins.
    next: u64,
    /// Where all that there was ended.
    end: u64,
    clock: Reading,
    requests: Vec<(NodeId, BindingKey, u64)>,
}

/// The page from a position on.
async fn read(
    session: &Session,
    from: u64,
    set: &[Recorded],
    bound: Duration,
) -> Result<Page, RequestError> {
    let asked = Instant::now();
    let reply = session.request(Request::ReadRecorder { from }, bound).await?;
    let Reply::Recorder(page) = *reply else {
        return Err(session.nonsense());
    };
    let doubt = asked.elapsed();
    let RecorderPage { first, end, now: proxy, requests, bytes, .. } = page;
    let next = first.saturating_add(bytes.len() as u64);
    if next > end || (next < end && bytes.is_empty()) {
        return Err(session.nonsense());
    }
    let requests = set.iter().zip(&requests).map(|(r, n)| (r.peer, r.binding, *n)).collect();
    let bytes = bytes.to_vec();
    Ok(Page { bytes, next, end, clock: Reading { proxy, asked, doubt }, requests })
}

/// Gives a page's entries to those who want them.
async fn hand_on(session: &Session, page: Option<Page>) -> Result<(), RequestError> {
    let Some(Page { bytes, next, end, clock, requests }) = page else { return Ok(()) };
    let kept: Result<Vec<_>, _> =
        entries(&bytes).map(|e| e.map(|(entry, bytes)| (entry, bytes.to_vec()))).collect();
    let Ok(entries) = kept else { return Err(session.nonsense()) };
    session.tap.give(Piece { entries, next, end, clock, requests }).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlp_codec::ids::{Epoch, SlotFunction, SlotId};

    fn recorded(slot: u8, one_in: u32, tlps: u16, frames: u16) -> Recorded {
        let binding = BindingKey {
            slot: SlotId::new(slot).unwrap(),
            function: SlotFunction::ZERO,
            epoch: Epoch::new(0, 1).unwrap(),
        };
        Recorded { peer: NodeId::new(1).unwrap(), binding, one_in, tlps, frames }
    }

    #[test]
    fn everybody_gets_what_they_want() {
        let frames = vec![recorded(1, 0, 0, 100)];
        let some = vec![recorded(1, 16, 32, 0), recorded(2, 16, 32, 0)];
        let all = vec![recorded(1, 1, 9000, 9000)];
        assert_eq!(
            union([&frames, &some].into_iter()),
            [recorded(1, 16, 32, 100), recorded(2, 16, 32, 0)]
        );
        assert_eq!(
            union([&some, &all, &frames].into_iter()),
            [recorded(1, 1, 9000, 9000), recorded(2, 16, 32, 0)]
        );
        assert_eq!(union(std::iter::empty()), []);
    }

    #[test]
    fn what_was_recorded_until_a_time_is_there_although_more_is_behind_it() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let piece = |at, next, end| Piece {
            entries: Vec::new(),
            next,
            end,
            clock: Reading { proxy: 0, asked: begin + ms(at), doubt: Duration::ZERO },
            requests: Vec::new(),
        };
        let mut upto = Upto::new(begin + ms(10));
        let pieces = [(5, 100, 100), (9, 150, 400), (10, 200, 500), (11, 400, 700), (12, 500, 900)];
        let reached = pieces.map(|(at, next, end)| upto.is_reached(&piece(at, next, end)));
        assert_eq!(reached, [false, false, false, false, true]);
        assert!(Upto::new(begin).is_reached(&piece(0, 7, 7)), "all that there is");
    }
}
