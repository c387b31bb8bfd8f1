//! When a proxy is not heard: while what it told waits for the store, nothing that it says behind that
//! is read, and an answer may be there.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// What is waited for shorter is no stall: every event takes its moment, and a proxy that tells them
/// without a pause would have no bound.
const STALL: Duration = Duration::from_millis(100);

/// So many bounds are added at most because of stalls. One that tells and tells while each event waits
/// for a slow disk, and answers nothing, has to go.
const MORE_BOUNDS: u32 = 3;

/// How long a proxy was not heard. A bound on its answers runs only while it is: a disk that stalls is
/// no fault of its.
#[derive(Debug, Default)]
pub struct Unheard {
    times: Mutex<Times>,
    over: Notify,
}

#[derive(Debug, Default)]
struct Times {
    /// Those stalls that are over.
    whole: Duration,
    since: Option<Instant>,
}

impl Unheard {
    /// It is not heard until the return value is dropped.
    pub fn begin(&self) -> impl Drop + use<'_> {
        self.times().since = Some(Instant::now());
        Until(self)
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().expect("no one panics while holding it")
    }

    /// How long it stalled so far, and whether it does now.
    fn so_far(&self) -> (Duration, bool) {
        let times = self.times();
        let now = times.now();
        (times.whole + now.unwrap_or_default(), now.is_some())
    }

    /// In how long what is done with it now is a stall, if it is none yet.
    fn may_stall(&self) -> Option<Duration> {
        let since = self.times().since?;
        STALL.checked_sub(since.elapsed()).filter(|rest| !rest.is_zero())
    }

    /// Waits until what is done with it now is done. Another event may be there at once.
    async fn over(&self) {
        let mut over = pin!(self.over.notified());
        // What happens from here on wakes it.
        over.as_mut().enable();
        if self.times().since.is_some() {
            over.await;
        }
    }

    /// What comes of something that the proxy has to say within `bound`; nothing if it does not. A
    /// stall is waited for until it ends; all else is over after `bound` and `MORE_BOUNDS` such.
    pub async fn within<F: Future>(&self, bound: Duration, what: F) -> Option<F::Output> {
        let mut what = pin!(what);
        let (mut left, mut more) = (bound, bound * MORE_BOUNDS);
        loop {
            let (before, _) = self.so_far();
            if let Ok(said) = timeout(left, &mut what).await {
                return Some(said);
            }
            // What has just begun may become a stall.
            if let Some(rest) = self.may_stall()
                && let Ok(said) = timeout(rest, &mut what).await
            {
                return Some(said);
            }
            let (after, stalls) = self.so_far();
            // What it said meanwhile waits behind other things: that is read first.
            left = if stalls { bound } else { after.saturating_sub(before) }.min(more);
            if left.is_zero() {
                return None;
            }
            more -= left;
            tokio::select! {
                biased;
                said = &mut what => return Some(said),
                () = self.over() => {}
            }
        }
    }
}

impl Times {
    /// How long it stalls now, if it does.
    fn now(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed()).filter(|time| *time >= STALL)
    }
}

struct Until<'a>(&'a Unheard);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        let mut times = self.0.times();
        let now = times.now();
        times.whole += now.unwrap_or_default();
        times.since = None;
        drop(times);
        self.0.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::sleep;

    const BOUND: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_bound_runs_only_while_the_proxy_is_heard() {
        let (unheard, begun) = (Unheard::default(), Instant::now());
        assert_eq!(unheard.within(BOUND, pending::<()>()).await, None);
        assert_eq!(begun.elapsed().as_secs(), 10);

        // It is heard again before the bound is over.
        let begun = Instant::now();
        let stalls = async {
            sleep(BOUND / 2).await;
            let until = unheard.begin();
            sleep(BOUND / 4).await;
            drop(until);
        };
        let (said, ()) = tokio::join!(unheard.within(BOUND, pending::<()>()), stalls);
        assert_eq!((said, begun.elapsed().as_millis()), (None, 12_500));

        // Only later.
        let begun = Instant::now();
        let until = unheard.begin();
        let stalls = async {
            sleep(BOUND * 3).await;
            drop(until);
        };
        let says = sleep(BOUND * 3 + BOUND / 2);
        let (said, ()) = tokio::join!(unheard.within(BOUND, says), stalls);
        assert_eq!((said, begun.elapsed().as_secs()), (Some(()), 35));

        // It had only begun not to be when the bound was over.
        let stalls = async {
            sleep(BOUND - STALL / 2).await;
            let until = unheard.begin();
            sleep(BOUND).await;
            drop(until);
        };
        let says = sleep(BOUND * 2);
        let (said, ()) = tokio::join!(unheard.within(BOUND, says), stalls);
        assert_eq!(said, Some(()));
    }

    /// How long something is waited for that does not come, of a proxy that tells one event after the
    /// other, of which each takes so long.
    async fn given_up(event: Duration, pause: Duration) -> u128 {
        let (unheard, begun) = (Unheard::default(), Instant::now());
        let tells = async {
            loop {
                let until = unheard.begin();
                sleep(event).await;
                drop(until);
                sleep(pause).await;
            }
        };
        tokio::select! {
            said = unheard.within(BOUND, pending::<()>()) => assert_eq!(said, None),
            () = tells => unreachable!(),
            () = sleep(BOUND * 100) => panic!("it waits for ever"),
        }
        begun.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn events_without_a_pause_put_no_bound_off_for_ever() {
        let ms = Duration::from_millis;
        for pause in [ms(0), ms(1)] {
            let all = given_up(ms(1), pause).await;
            assert!((10_000..=10_100).contains(&all), "{all}");
        }
        // Each waits for a slow disk: what it has to say may be behind many.
        let all = given_up(ms(700), ms(0)).await;
        assert!((40_000..45_000).contains(&all), "{all}");
    }
}
