//! Interrupts: the eventfds that the client gave, and what it masked.

use crate::device::{Device, Irq};
use crate::signals::Signals;
use crate::wire::{Action, IrqSet, Which};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// One vector.
#[derive(Debug, Default)]
struct Vector {
    /// Written when it is triggered.
    trigger: Option<Eventfd>,
    /// Written when it is masked.
    on_mask: Option<Eventfd>,
    /// Written when it is unmasked.
    on_unmask: Option<Eventfd>,
    masked: bool,
    /// Triggered while it was masked.
    pending: bool,
}

/// The vectors of all kinds.
#[derive(Debug)]
pub(crate) struct Irqs {
    kinds: [Vec<Vector>; Irq::ALL.len()],
    signals: Signals,
}

impl Irqs {
    /// Nothing is set.
    pub(crate) fn new(device: &Device) -> Self {
        let vectors = |count: u32| (0..count).map(|_| Vector::default()).collect();
        Self { kinds: device.irqs.map(vectors), signals: Signals::new() }
    }

    /// Closes every eventfd and unmasks everything.
    pub(crate) fn clear(&mut self) {
        self.kinds.iter_mut().for_each(|vectors| disable(vectors));
    }

    /// Triggers a vector. False: the client has set no eventfd for it.
    pub(crate) fn trigger(&mut self, irq: Irq, vector: u32) -> bool {
        let vectors = &mut self.kinds[irq.index()];
        let vector = usize::try_from(vector).ok().and_then(|vector| vectors.get_mut(vector));
        vector.is_some_and(|vector| vector.trigger(irq, &mut self.signals))
    }

    /// `VFIO_USER_DEVICE_SET_IRQS`.
    ///
    /// EINVAL for what is not there or does not go together; then nothing is changed.
    pub(crate) fn set(&mut self, set: &IrqSet<'_>, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        let irq = Irq::from_index(set.index).ok_or(Errno::INVAL)?;
        if set.action != Action::Trigger && !irq.is_maskable() {
            return Err(Errno::INVAL);
        }
        let (start, count) = (set.start as usize, set.count as usize);
        let vectors = &mut self.kinds[irq.index()];
        if start >= vectors.len() || count > vectors.len() - start {
            return Err(Errno::INVAL);
        }
        let fds_fit = match set.which {
            Which::Eventfds => fds.is_empty() || fds.len() == count,
            _ => fds.is_empty(),
        };
        let all_off = set.which == Which::All && set.action == Action::Trigger && start == 0;
        if !fds_fit || (count == 0 && !all_off) {
            return Err(Errno::INVAL);
        }
        if count == 0 {
            disable(vectors);
            return Ok(());
        }
        let range = &mut vectors[start..start + count];
        let signals = &mut self.signals;
        match set.which {
            Which::All => {
                range.iter_mut().for_each(|vector| vector.act(irq, set.action, signals));
            }
            Which::Chosen(chosen) => {
                let chosen = range.iter_mut().zip(chosen).filter(|(_, yes)| **yes != 0);
                chosen.for_each(|(vector, _)| vector.act(irq, set.action, signals));
            }
            Which::Eventfds => {
                let fds: Vec<Eventfd> =
                    fds.into_iter().map(Eventfd::new).collect::<Result<_, _>>()?;
                let mut fds = fds.into_iter();
                range.iter_mut().for_each(|vector| vector.assign(set.action, fds.next()));
            }
        }
        Ok(())
    }
}

fn disable(vectors: &mut [Vector]) {
    vectors.iter_mut().for_each(|vector| *vector = Vector::default());
}

impl Vector {
    fn trigger(&mut self, irq: Irq, signals: &mut Signals) -> bool {
        let Some(eventfd) = &self.trigger else {
            return false;
        };
        if self.masked {
            self.pending = true;
            return true;
        }
        let signalled = eventfd.signal(signals);
        if irq.masks_itself() {
            self.mask(signals);
        }
        signalled
    }

    fn act(&mut self, irq: Irq, action: Action, signals: &mut Signals) {
        match action {
            Action::Mask => self.mask(signals),
            Action::Unmask => self.unmask(irq, signals),
            Action::Trigger => {
                self.trigger(irq, signals);
            }
        }
    }

    fn mask(&mut self, signals: &mut Signals) {
        if std::mem::replace(&mut self.masked, true) {
            return;
        }
        if let Some(on_mask) = &self.on_mask {
            on_mask.signal(signals);
        }
    }

    fn unmask(&mut self, irq: Irq, signals: &mut Signals) {
        if !std::mem::take(&mut self.masked) {
            return;
        }
        if let Some(on_unmask) = &self.on_unmask {
            on_unmask.signal(signals);
        }
        if std::mem::take(&mut self.pending) {
            self.trigger(irq, signals);
        }
    }

    /// Sets or takes away the eventfd for an action.
    fn assign(&mut self, action: Action, eventfd: Option<Eventfd>) {
        match action {
            Action::Mask => self.on_mask = eventfd,
            Action::Unmask => self.on_unmask = eventfd,
            Action::Trigger => {
                if eventfd.is_none() {
                    // What waited for the old owner is not for the next one.
                    self.pending = false;
                }
                self.trigger = eventfd;
            }
        }
    }
}

/// An eventfd of the client.
#[derive(Debug)]
struct Eventfd(OwnedFd);

impl Eventfd {
    /// EINVAL for what is no eventfd.
    fn new(fd: OwnedFd) -> Result<Self, Errno> {
        // The only place where the kernel says what an anonymous inode is.
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let name = std::fs::read_link(link).map_err(|_| Errno::INVAL)?;
        if name != Path::new("anon_inode:[eventfd]") {
            return Err(Errno::INVAL);
        }
        Ok(Self(fd))
    }

    fn signal(&self, signals: &mut Signals) -> bool {
        signals.signal(self.0.as_fd())
    }
}
