//! Recordings: started by somebody, kept until they are fetched and forgotten.
//!
//! They are in the manager's memory and end with it. A proxy that loses its connection to the
//! manager stops recording by itself.

use super::HEADER;
use super::clock::Anchor;
use super::collect::Collected;
use super::end::End;
use super::{join, pcapng, perfetto};
use crate::control::Session;
use crate::manager::Manager;
use crate::types::{
    BindingId, BindingRecord, NodeName, Problem, ProblemCode, RecordingId, Role, SlotAddress,
    Timestamp,
};
use manager_client::views::{EndReason, Ended, Format, NotRecorded};
use proxy_core::recorder::Recorded;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::NodeId;
use tokio::sync::{Notify, watch};
use tokio::task::JoinError;
use tokio::time::Instant;

/// Recordings that are kept. For a further one the oldest that has ended is forgotten; if none
/// has, it is refused.
pub const MAX_RECORDINGS: usize = 8;

/// The most memory that one may take, bytes.
pub const MAX_LIMIT: u64 = 256 << 20;

/// The longest that one may run, milliseconds.
pub const MAX_DURATION_MS: u32 = 3_600_000;

/// How often it is looked whether the binding still stands.
const LOOK: Duration = Duration::from_millis(100);

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The binding.
    pub binding: BindingId,
    /// What is made of it.
    pub format: Format,
    /// The proxy that it is seen from.
    pub seen_from: Role,
    /// How long it runs, if nothing ends it before.
    pub duration: Duration,
    /// Memory that it may take, bytes.
    pub limit: u64,
    /// Bytes that are kept of each TLP or frame.
    pub snap: u16,
}

/// How far a recording has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// TLPs or frames.
    pub packets: u64,
    /// Memory that it takes, bytes.
    pub bytes: u64,
    /// Entries that the host proxy had no room for. It does not know of which binding.
    pub lost_at_host: u64,
    /// As `lost_at_host`, of the box proxy.
    pub lost_at_box: u64,
    /// Why it ended, once it has.
    pub ended: Option<Ended>,
}

struct Kept {
    host: Collected,
    boxed: Collected,
}

/// One recording.
pub struct Recording {
    /// Its number.
    pub id: RecordingId,
    /// What is recorded.
    pub wish: Wish,
    /// The slot.
    pub slot: SlotAddress,
    /// The host.
    pub host: NodeName,
    /// Since when.
    pub since: Timestamp,
    /// The end that is not recorded.
    pub not_recorded: Option<NotRecorded>,
    nodes: (pcapng::Node, pcapng::Node),
    progress: watch::Sender<Progress>,
    stop: Notify,
    kept: Mutex<Option<Arc<Kept>>>,
}

#[derive(Default)]
struct State {
    last: u64,
    all: BTreeMap<RecordingId, Arc<Recording>>,
}

/// Every recording there is.
#[derive(Default)]
pub struct Recordings {
    state: Mutex<State>,
    making: Arc<tokio::sync::Mutex<()>>,
}

impl Recordings {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding it")
    }

    /// All, oldest first.
    pub fn all(&self) -> Vec<Arc<Recording>> {
        self.state().all.values().cloned().collect()
    }

    /// One.
    pub fn get(&self, id: RecordingId) -> Option<Arc<Recording>> {
        self.state().all.get(&id).cloned()
    }

    /// Stops one and forgets it; whether it was there.
    pub fn forget(&self, id: RecordingId) -> bool {
        let found = self.state().all.remove(&id);
        if let Some(recording) = &found {
            recording.stop();
        }
        found.is_some()
    }

    /// Makes a file, one at a time: that takes time, and more memory than what it is made of. Others
    /// wait.
    ///
    /// # Errors
    ///
    /// When the making panics.
    pub async fn make<T: Send + 'static>(
        &self,
        file: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = self.making.clone().lock_owned().await;
        let made = tokio::task::spawn_blocking(move || {
            // Whoever wanted it may have gone away: the turn is over when it is made.
            let _turn = turn;
            file()
        });
        made.await
    }

    fn make_room(state: &mut State) -> Result<(), Problem> {
        if state.all.len() < MAX_RECORDINGS {
            return Ok(());
        }
        let ended = state.all.values().find(|r| r.progress().ended.is_some()).map(|r| r.id);
        let Some(ended) = ended else {
            let detail = format!("{MAX_RECORDINGS} recordings run already; stop one of them");
            return Err(Problem::new(ProblemCode::LimitReached, detail));
        };
        state.all.remove(&ended);
        Ok(())
    }
}

/// The binding, and its host's and its box's proxies.
fn ends(
    manager: &Manager,
    id: BindingId,
) -> Result<(BindingRecord, Arc<Session>, Arc<Session>), Problem> {
    let tables = manager.records.snapshot();
    let binding = tables.bindings().get(&id).cloned().ok_or_else(|| {
        Problem::new(ProblemCode::NoSuchBinding, format!("there is no binding {id} now"))
    })?;
    if !binding.phase.at_host() {
        let detail =
            format!("{id} is {}: what is recorded has to be plugged into its host", binding.phase);
        return Err(Problem::new(ProblemCode::NotLent, detail));
    }
    let connected = |name: &NodeName| {
        let away = || Problem::new(ProblemCode::NotConnected, format!("{name} is not connected"));
        manager.registry.ready(name).ok_or_else(away)
    };
    let (host, boxed) = (connected(&binding.host)?, connected(binding.slot.box_name())?);
    Ok((binding, host, boxed))
}

/// What one end has to record for a wish.
fn wanted(wish: &Wish, binding: &BindingRecord, here: Role, peer: NodeId) -> Vec<Recorded> {
    let seen_here = wish.seen_from == here;
    let (one_in, tlps, frames) = match wish.format {
        Format::Frames => (1, 0, if seen_here { wish.snap } else { 0 }),
        Format::Tlps => (1, if seen_here { wish.snap } else { 0 }, 0),
        Format::Perfetto => (1, if seen_here { wish.snap.min(HEADER) } else { 0 }, 0),
    };
    binding.keys().map(|binding| Recorded { peer, binding, one_in, tlps, frames }).collect()
}

/// Which of both ends has no recorder, if it is one, and not the one that is to be seen from.
fn not_recorded(seen_from: Role, host: &End, boxed: &End) -> Result<Option<NotRecorded>, Problem> {
    let refused = |detail| Err(Problem::new(ProblemCode::ProxyRefused, detail));
    let (host_name, box_name) = (host.session.name(), boxed.session.name());
    let (end, without, with) = match (&host.watch, &boxed.watch) {
        (Some(_), Some(_)) => return Ok(None),
        (None, None) => {
            return refused(format!(
                "neither {host_name} nor {box_name} has memory for a flight recorder: nothing of \
                 what they do can be recorded"
            ));
        }
        (None, Some(_)) => (Role::Host, host_name, box_name),
        (Some(_), None) => (Role::Box, box_name, host_name),
    };
    if end == seen_from {
        let other = if end == Role::Host { Role::Box } else { Role::Host };
        return refused(format!(
            "{without} has no memory for a flight recorder: record what {with} sees (seen from: \
             {other})"
        ));
    }
    let detail = format!("{without} has no memory for a flight recorder");
    Ok(Some(NotRecorded { end, detail }))
}

/// Starts a recording: it runs when this returns.
///
/// # Errors
///
/// When the binding or a proxy is not there, or does not record.
pub async fn start(manager: &Arc<Manager>, wish: Wish) -> Result<Arc<Recording>, Problem> {
    let (binding, host, boxed) = ends(manager, wish.binding)?;
    let node = |session: &Session| pcapng::Node {
        node: session.identity().node,
        paths: session.identity().paths.clone(),
    };
    let nodes = (node(&host), node(&boxed));
    let bound = manager.settings.request_bound;
    let at_host = wanted(&wish, &binding, Role::Host, nodes.1.node);
    let at_box = wanted(&wish, &binding, Role::Box, nodes.0.node);
    // The box first: what the host asks then is stamped at both ends from the beginning.
    let anchor = Anchor::now();
    let mut boxed = End::begin(boxed, at_box, bound, anchor).await?;
    let begun = End::begin(host, at_host, bound, anchor);
    let host = boxed.read_during(begun, wish.limit as usize).await?;
    let not_recorded = not_recorded(wish.seen_from, &host, &boxed)?;
    let recording = {
        let mut state = manager.recordings.state();
        Recordings::make_room(&mut state)?;
        state.last += 1;
        let recording = Arc::new(Recording {
            id: RecordingId(state.last),
            slot: binding.slot.clone(),
            host: binding.host.clone(),
            since: Timestamp::now(),
            not_recorded,
            nodes,
            progress: watch::Sender::default(),
            stop: Notify::new(),
            kept: Mutex::default(),
            wish,
        });
        state.all.insert(recording.id, recording.clone());
        recording
    };
    let run = Run { recording: recording.clone(), binding, host, boxed };
    tokio::spawn(run.finish(manager.clone()));
    Ok(recording)
}

/// A recording that runs.
struct Run {
    recording: Arc<Recording>,
    binding: BindingRecord,
    host: End,
    boxed: End,
}

impl Run {
    async fn finish(mut self, manager: Arc<Manager>) {
        let ended = self.until_it_ends(&manager).await;
        let (now, limit) = (Instant::now(), self.recording.wish.limit as usize);
        // Its limit may be what ended it.
        let room = limit.saturating_sub(self.host.collected.bytes + self.boxed.collected.bytes);
        let room = AtomicUsize::new(room);
        // Both at a time: whoever is not read holds up everybody who reads that proxy.
        tokio::join!(self.host.drain(now, &room), self.boxed.drain(now, &room));
        let Self { recording, host, boxed, .. } = self;
        let (host, boxed) = (host.collected, boxed.collected);
        let progress = Progress { ended: Some(ended), ..recording.count(&host, &boxed) };
        let kept = Arc::new(Kept { host, boxed });
        *recording.kept.lock().expect("no one panics while holding it") = Some(kept);
        recording.progress.send_replace(progress);
    }

    async fn until_it_ends(&mut self, manager: &Manager) -> Ended {
        let ended = |reason, detail: String| Ended { reason, detail };
        let recording = self.recording.clone();
        let time = tokio::time::sleep(recording.wish.duration);
        tokio::pin!(time);
        let mut look = tokio::time::interval(LOOK);
        loop {
            let (piece, end) = tokio::select! {
                piece = self.host.next() => (piece, &mut self.host),
                piece = self.boxed.next() => (piece, &mut self.boxed),
                _ = look.tick() => {
                    if let Some(why) = self.binding_is_over(manager) {
                        return ended(EndReason::BindingEnded, why);
                    }
                    continue;
                }
                () = &mut time => {
                    let detail = format!("it ran {:?}", recording.wish.duration);
                    return ended(EndReason::Time, detail);
                }
                () = recording.stop.notified() => {
                    return ended(EndReason::Stopped, "it was stopped".to_owned());
                }
                () = manager.stopping() => {
                    let detail = "the manager is stopping".to_owned();
                    return ended(EndReason::ManagerStopping, detail);
                }
            };
            let Some(piece) = piece else {
                let session = &end.session;
                let why = session.close_reason().unwrap_or_else(|| "it does not record".to_owned());
                let detail = format!("{} is disconnected: {why}", session.name());
                return ended(EndReason::ProxyGone, detail);
            };
            end.collected.take(&piece);
            let progress = recording.count(&self.host.collected, &self.boxed.collected);
            let full = progress.bytes >= recording.wish.limit;
            recording.progress.send_replace(progress);
            if full {
                let detail = format!("it has {} bytes, its limit", recording.wish.limit);
                return ended(EndReason::Limit, detail);
            }
        }
    }

    /// Why there is nothing more to come.
    fn binding_is_over(&self, manager: &Manager) -> Option<String> {
        let id = self.binding.id;
        match manager.records.snapshot().bindings().get(&id) {
            None => Some(format!("{id} is released")),
            Some(now) if now.functions != self.binding.functions => {
                Some(format!("{id} was made anew, under other epochs"))
            }
            Some(now) if !now.phase.at_host() => {
                let trouble = now.trouble.as_ref().map(|t| format!(": {t}")).unwrap_or_default();
                Some(format!("{id} is {}{trouble}", now.phase))
            }
            Some(_) => None,
        }
    }
}

impl Recording {
    /// How far it has got.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Ends it, if it runs.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until it has ended, but no longer than this.
    pub async fn ended(&self, bound: Duration) -> Progress {
        let mut progress = self.progress.subscribe();
        let _ = tokio::time::timeout(bound, progress.wait_for(|p| p.ended.is_some())).await;
        self.progress()
    }

    fn count(&self, host: &Collected, boxed: &Collected) -> Progress {
        let seen = if self.wish.seen_from == Role::Host { host } else { boxed };
        Progress {
            packets: (seen.tlps.len() + seen.frames.len()) as u64,
            bytes: (host.bytes + boxed.bytes) as u64,
            lost_at_host: host.lost,
            lost_at_box: boxed.lost,
            ended: None,
        }
    }

    /// The file, once it has ended. Takes time.
    pub fn file(&self) -> Option<Vec<u8>> {
        let kept = self.kept.lock().expect("no one panics while holding it").clone()?;
        let ended = self.progress().ended?;
        let Kept { host, boxed } = &*kept;
        let Wish { binding, format, seen_from, snap, .. } = &self.wish;
        let mut comment = format!(
            "{binding}: {} lent to {}, recorded since {}; ended because {}. Dates are by the \
             manager's clock, to a control message's round trip; differences are the proxy's own, \
             but for what its clock drifts.",
            self.slot, self.host, self.since, ended.detail
        );
        if let Some(NotRecorded { detail, .. }) = &self.not_recorded {
            comment.push_str(&format!(" {detail}: its stages are missing."));
        }
        let at_host = *seen_from == Role::Host;
        let (here, there) = match at_host {
            true => (&self.nodes.0, &self.nodes.1),
            false => (&self.nodes.1, &self.nodes.0),
        };
        let seen = if at_host { host } else { boxed };
        let name = if at_host { &self.host } else { self.slot.box_name() };
        let about = pcapng::About {
            seen_from: name.to_string(),
            comment: comment.clone(),
            snap: *snap,
            lost: seen.lost,
        };
        Some(match format {
            Format::Frames => {
                let tlps = join::stamped(host, boxed, at_host);
                pcapng::frames(&about, seen, at_host, &tlps, here, there)
            }
            Format::Tlps => pcapng::tlps(&about, seen, at_host, &join::tlps(host, boxed, at_host)),
            Format::Perfetto => {
                let about = perfetto::About {
                    comment,
                    slot: self.slot.to_string(),
                    host: self.host.to_string(),
                    lost: (host.lost, boxed.lost),
                };
                let trips = join::trips(join::tlps(host, boxed, at_host));
                perfetto::trace(&about, host, boxed, &trips)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    #[tokio::test(flavor = "multi_thread")]
    async fn one_file_is_made_at_a_time_even_if_nobody_waits_for_it_any_more() {
        let recordings = Arc::new(Recordings::default());
        let (go_on, wait) = mpsc::channel::<()>();
        let (began, has_begun) = tokio::sync::oneshot::channel();
        let making = Arc::new(AtomicU32::new(0));
        let (all, of_first) = (recordings.clone(), making.clone());
        let first = tokio::spawn(async move {
            let file = move || {
                of_first.fetch_add(1, SeqCst);
                began.send(()).unwrap();
                wait.recv().unwrap();
                of_first.fetch_sub(1, SeqCst);
            };
            all.make(file).await
        });
        has_begun.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = recordings.make(move || making.load(SeqCst));
        tokio::pin!(second);
        let early = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
        assert!(early.is_err(), "{early:?} were being made");
        go_on.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 0);
    }
}
