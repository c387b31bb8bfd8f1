//! Letting go of a client's memory without waiting for it.
//!
//! Who gives up the last map of a file or its last descriptor frees its pages, and that of a virtual
//! machine which is gone is this process: at some 0.7 us a page, gigabytes take seconds, in which the
//! server would answer nobody.

use super::backing::Backing;
use crate::limits::{MAX_LEAVING, MAX_LET_GO_AT_ONCE};
use std::thread::{Builder, JoinHandle};

/// The memory that is being let go of.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    threads: Vec<JoinHandle<()>>,
}

impl Leaving {
    /// Lets go of what is behind so many bytes, which nobody reaches any more: a little at once, much in a
    /// thread of its own.
    pub(super) fn let_go(&mut self, gone: Vec<Backing>, bytes: u64) {
        self.threads.retain(|thread| !thread.is_finished());
        if bytes <= MAX_LET_GO_AT_ONCE || self.threads.len() == MAX_LEAVING {
            return;
        }
        // Where no thread is to be had, what it was to let go of is gone with it, here.
        self.threads.extend(Builder::new().name("unmap".into()).spawn(move || drop(gone)));
    }

    /// In how many threads.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Waits until all of it is gone.
    #[cfg(test)]
    pub(super) fn wait(&mut self) {
        self.threads.drain(..).for_each(|thread| thread.join().expect("it only lets go"));
    }
}
