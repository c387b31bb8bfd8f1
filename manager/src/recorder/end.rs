//! One end of a recording.

use super::clock::Anchor;
use super::collect::Collected;
use super::tap::{self, Piece, Upto, Watch, WatchError};
use crate::control::Session;
use crate::types::{NodeName, Problem, ProblemCode};
use proxy_core::recorder::Recorded;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long the proxies have to give what they recorded before the end.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a proxy is not recorded, for whoever asked for it.
fn watch_problem(error: WatchError, name: &NodeName) -> Problem {
    match error {
        WatchError::Request(error) => error.problem(name),
        WatchError::Full => Problem::new(ProblemCode::LimitReached, format!("{name}: {error}")),
    }
}

/// One end of a binding that is recorded: its proxy, what comes from it, and what was kept of that.
pub(super) struct End {
    pub(super) session: Arc<Session>,
    /// None where the proxy has no recorder.
    pub(super) watch: Option<Watch>,
    pub(super) collected: Collected,
}

impl End {
    pub(super) async fn begin(
        session: Arc<Session>,
        list: Vec<Recorded>,
        bound: Duration,
        anchor: Anchor,
    ) -> Result<Self, Problem> {
        let (watch, wanted) = match tap::watch(&session, list.clone(), bound).await {
            Ok(watch) => (Some(watch), list),
            Err(error) if error.is_for_want_of_a_recorder() => (None, Vec::new()),
            Err(error) => return Err(watch_problem(error, session.name())),
        };
        Ok(Self { session, watch, collected: Collected::new(wanted, anchor) })
    }

    /// The next piece; `None` when the proxy's connection ended.
    pub(super) async fn next(&mut self) -> Option<Arc<Piece>> {
        match &mut self.watch {
            Some(watch) => watch.next().await,
            None => {
                self.session.closed().await;
                None
            }
        }
    }

    /// Reads on while something else is waited for: whoever is not read holds up everybody who reads that
    /// proxy. What there is no room for in so many bytes is left out.
    pub(super) async fn read_during<T>(
        &mut self,
        other: impl Future<Output = T>,
        most: usize,
    ) -> T {
        let mut other = pin!(other);
        loop {
            tokio::select! {
                biased;
                done = &mut other => return done,
                piece = self.next() => match piece {
                    Some(piece) if self.collected.bytes < most => self.collected.take(&piece),
                    Some(_) => {}
                    None => return other.await,
                },
            }
        }
    }

    /// Takes what was recorded until a point in time, as long as there is room for so many bytes, and
    /// reads no more: the other end may take longer.
    pub(super) async fn drain(&mut self, until: Instant, room: &AtomicUsize) {
        let Some(mut watch) = self.watch.take() else { return };
        let mut upto = Upto::new(until);
        let rest = async {
            while let Some(piece) = watch.next().await {
                let left = room.load(Ordering::Relaxed);
                if left > 0 {
                    let before = self.collected.bytes;
                    self.collected.take(&piece);
                    let taken = self.collected.bytes - before;
                    room.store(left.saturating_sub(taken), Ordering::Relaxed);
                }
                if upto.is_reached(&piece) {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN, rest).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::session::Identity;
    use crate::recorder::clock::Reading;
    use crate::types::{Role, Timestamp};
    use proxy_core::control::Term;
    use std::net::{Ipv4Addr, SocketAddr};
    use tlp_codec::ids::NodeId;

    fn end(name: &str) -> End {
        let identity = Identity {
            name: NodeName::new(name).unwrap(),
            role: Role::Host,
            size: 1,
            node: NodeId::new(1).unwrap(),
            incarnation: 1,
            paths: Vec::new(),
            mtu: 1500,
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            since: Timestamp::now(),
        };
        let session = Arc::new(Session::new(identity, Term(1)).0);
        let watch = Some(tap::watched(&session));
        End { session, watch, collected: Collected::new(Vec::new(), Anchor::now()) }
    }

    /// All that there is.
    fn piece() -> Piece {
        let clock = Reading { proxy: 0, asked: Instant::now(), doubt: Duration::ZERO };
        Piece { entries: Vec::new(), next: 0, end: 0, clock, requests: Vec::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_all_does_not_hold_up_others_while_the_other_end_is_slow() {
        let (mut host, mut boxed) = (end("host1"), end("box1"));
        let (until, room) = (Instant::now(), AtomicUsize::new(0));
        let session = host.session.clone();
        let others = async {
            // More than wait for anybody.
            for _ in 0..1000 {
                session.tap.give(piece()).await;
            }
            Instant::now()
        };
        let both = async { tokio::join!(host.drain(until, &room), boxed.drain(until, &room)) };
        let (_, given) = tokio::join!(both, others);
        assert!(given < until + DRAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_begun_is_read_while_the_other_end_begins() {
        let mut boxed = end("box1");
        let (session, begun) = (boxed.session.clone(), Instant::now());
        let others = async {
            for _ in 0..1000 {
                session.tap.give(piece()).await;
            }
            Instant::now()
        };
        let other_end = tokio::time::sleep(DRAIN);
        let (_, given) = tokio::join!(boxed.read_during(other_end, 0), others);
        assert!(given < begun + DRAIN);
    }
}
