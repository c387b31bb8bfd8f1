//! When a link wants to be woken, and what it does then.

use super::Link;
use super::types::LinkState;
use crate::time::{Earliest, Instant};

impl Link {
    /// When [`handle_timeout`](Self::handle_timeout) and then
    /// [`poll_transmit`](Self::poll_transmit) are to be called if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            LinkState::Opening => Some(self.handshake.retry_at()),
            LinkState::Down(_) => None,
            LinkState::Up => {
                let mut first = Earliest::NONE;
                for path in self.paths() {
                    first.timer(path.timeout_at);
                    path.loss_at.iter().for_each(|timer| first.timer(*timer));
                    first.timer(path.doubt_at);
                    // What is due waits for room where frames leave, not for time.
                    if !path.ack_now {
                        first.timer(path.ack_at);
                    }
                }
                first.or(self.give_up_at());
                first.timer(self.credit_at);
                first.timer(self.share_at);
                first.or(self.keep_alive_at());
                first.or(self.probe_timeout());
                first.get()
            }
        }
    }

    /// Does what is due at `now`; nothing if called early.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state != LinkState::Up {
            return;
        }
        self.handle_flight_timeout(now);
        for path in &mut self.paths[..self.path_count] {
            path.ack_now |= path.ack_at.is_due(now);
        }
        self.handle_probe_timeout(now);
        self.handle_share_timeout(now);
        if self.credit_at.take_due(now) {
            self.out.credits |= core::mem::take(&mut self.out.behind);
        }
        if self.keep_alive_at().is_some_and(|at| at <= now) {
            self.out.nop = true;
            self.counters.keep_alives += 1;
        }
    }

    /// A silent peer is asked for a sign of life: a record is sent, and if no acknowledgement
    /// comes the link goes down.
    fn keep_alive_at(&self) -> Option<Instant> {
        let wanted = self.channels.shared.open() > 0 && self.flight.is_empty() && !self.out.nop;
        wanted.then(|| self.last_heard + self.config.keep_alive)
    }
}
