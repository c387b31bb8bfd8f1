//! TLPs that wait at a place, in the order in which they came.

use crate::board::Windows;
use alloc::collections::VecDeque;
use proxy_core::link::ClassSet;
use tlp_codec::tlp::{Class, Packet};

/// What says of a TLP where it is, and its class: both in one value, so that it is small.
pub(crate) trait Stored {
    /// Its class.
    fn class(&self) -> Class;
}

/// TLPs that wait, as many as a place grants: it allocates once.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    tlps: VecDeque<T>,
    most: usize,
}

impl<T: Stored> Waiting<T> {
    /// For what these windows let in.
    pub(crate) fn new(windows: Windows) -> Self {
        let most = windows.total();
        Self { tlps: VecDeque::with_capacity(most), most }
    }

    /// Adds one behind the others.
    ///
    /// # Panics
    ///
    /// When all that the place grants are there.
    pub(crate) fn push(&mut self, tlp: T) {
        assert!(self.tlps.len() < self.most, "no more are granted");
        self.tlps.push_back(tlp);
    }

    /// The first of these classes that may go, and its place among all: posted ones pass what is no
    /// posted one, completions pass non-posted ones (PCI Express Base 5.0, section 2.4.1).
    pub(crate) fn first_of(&self, classes: ClassSet) -> Option<(usize, &T)> {
        let mut allowed = classes;
        for (index, tlp) in self.tlps.iter().enumerate() {
            if allowed.contains(tlp.class()) {
                return Some((index, tlp));
            }
            allowed = match tlp.class() {
                Class::Posted => return None,
                Class::NonPosted => allowed.without(Class::NonPosted),
                Class::Completion => allowed.without(Class::Completion).without(Class::NonPosted),
            };
        }
        None
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, index: usize) -> Option<T> {
        self.tlps.remove(index)
    }

    /// Takes the oldest out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.tlps.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.tlps.clear();
    }
}

/// Whose room a TLP takes: that of its class. What cannot be told from a TLP is told by the role; it
/// takes the room of a posted one.
pub fn class_of(tlp: &[u8]) -> Class {
    Packet::new_header_checked(tlp).ok().and_then(|packet| packet.class()).unwrap_or(Class::Posted)
}
