//! When a proxy is not heard: while what it told waits for the store, nothing that it says behind that
//! is read, and an answer may be there.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// How long a proxy was not heard. A bound on its answers runs only while it is: a disk that stalls is
/// no fault of its.
#[derive(Debug, Default)]
pub struct Unheard {
    times: Mutex<Times>,
    over: Notify,
}

#[derive(Debug, Default)]
struct Times {
    /// Those that are over.
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

    /// How long that was so far, and whether it is so now.
    fn so_far(&self) -> (Duration, bool) {
        let times = self.times();
        let now = times.since.map(|since| since.elapsed());
        (times.whole + now.unwrap_or_default(), now.is_some())
    }

    /// Waits until it is heard.
    async fn over(&self) {
        loop {
            let mut over = pin!(self.over.notified());
            // What happens from here on wakes it.
            over.as_mut().enable();
            if self.times().since.is_none() {
                return;
            }
            over.await;
        }
    }

    /// What comes of something that the proxy has to say within `bound`; nothing if it does not.
    pub async fn within<F: Future>(&self, bound: Duration, what: F) -> Option<F::Output> {
        let mut what = pin!(what);
        let mut left = bound;
        loop {
            let (before, _) = self.so_far();
            if let Ok(said) = timeout(left, &mut what).await {
                return Some(said);
            }
            let (after, is_unheard) = self.so_far();
            // What it said meanwhile waits behind other things: that is read first.
            left = if is_unheard { bound } else { after - before };
            if left.is_zero() {
                return None;
            }
            tokio::select! {
                biased;
                said = &mut what => return Some(said),
                () = self.over() => {}
            }
        }
    }
}

struct Until<'a>(&'a Unheard);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        let mut times = self.0.times();
        let now = times.since.take().map(|since| since.elapsed());
        times.whole += now.unwrap_or_default();
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
    }
}
