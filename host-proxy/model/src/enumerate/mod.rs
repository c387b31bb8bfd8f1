//! Finding what is below the root port and setting it up, as an operating system does it:
//! [`scan`] finds functions and numbers buses, [`resources`] gives out addresses, [`setup`]
//! writes all that into the functions and enables them.

pub(crate) mod resources;
mod scan;
mod setup;

pub(crate) use setup::enable_msi;

use crate::config::HostConfig;
use crate::error::AccessError;
use crate::port::TlpPort;
use crate::root::{FIRST_BUS, RootComplex};
use crate::topology::Topology;
use tlp_codec::ids::Bdf;

/// Something that keeps a function from working; the others go on.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Its configuration space could not be read or written.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No bus number is left for what is behind a bridge.
    #[error(
        "{0}: no bus number is left for what is behind it; reserve more for each hot-plug port"
    )]
    NoBus(Bdf),
    /// There is no place for a base address register.
    #[error(
        "{bdf}: no room for {size} bytes of {space} memory (BAR {bar}); reserve more for each \
         hot-plug port"
    )]
    NoRoom {
        /// Whose.
        bdf: Bdf,
        /// Which register.
        bar: u8,
        /// Bytes.
        size: u64,
        /// `32-bit` or `64-bit prefetchable`.
        space: &'static str,
    },
    /// There is no place for a bridge's window.
    #[error("{bdf}: no room for a {space} window of {size} bytes")]
    NoWindow {
        /// Whose.
        bdf: Bdf,
        /// Bytes.
        size: u64,
        /// `32-bit` or `64-bit prefetchable`.
        space: &'static str,
    },
    /// A port cannot tell of hot-plugs.
    #[error("{0}: the port has no MSI capability, so hot-plugs there are not noticed")]
    NoInterrupt(Bdf),
    /// Every interrupt vector is in use.
    #[error("{0}: no interrupt vector is left")]
    NoVector(Bdf),
}

/// Finds and sets up functions; collects what goes wrong with single ones.
pub(crate) struct Enumerator<'a, P> {
    pub(crate) root: &'a mut RootComplex<P>,
    pub(crate) topology: &'a mut Topology,
    pub(crate) config: &'a HostConfig,
    pub(crate) problems: Vec<(Bdf, Problem)>,
}

impl<P: TlpPort> Enumerator<'_, P> {
    /// Everything from the root port down, anew.
    ///
    /// # Errors
    ///
    /// When the root port fails, or cannot read what is right below it.
    pub(crate) fn everything(&mut self) -> Result<(), AccessError> {
        let mut buses = scan::Buses { next: u16::from(FIRST_BUS) + 1, last: 0xff };
        self.scan_bus(FIRST_BUS, None, &mut buses)?;
        self.assign(None, Some(self.config.window32), Some(self.config.window64));
        let top: Vec<Bdf> = self.topology.children(None).map(|node| node.bdf).collect();
        for bdf in top {
            self.set_up_tree(bdf)?;
        }
        Ok(())
    }

    /// What has come behind a hot-plug port whose windows and buses stand; the new functions.
    ///
    /// # Errors
    ///
    /// When the root port fails, or the device cannot be read.
    pub(crate) fn behind(&mut self, port: Bdf) -> Result<Vec<Bdf>, AccessError> {
        let Some(bridge) = self.topology.get(port).and_then(|node| node.bridge) else {
            return Ok(Vec::new());
        };
        let mut buses =
            scan::Buses { next: u16::from(bridge.secondary) + 1, last: bridge.subordinate };
        self.scan_bus(bridge.secondary, Some(port), &mut buses)?;
        self.assign(Some(port), bridge.memory, bridge.prefetch);
        let mut found = self.topology.below(port);
        found.sort();
        let top: Vec<Bdf> = self.topology.children(Some(port)).map(|node| node.bdf).collect();
        for bdf in top {
            self.set_up_tree(bdf)?;
        }
        Ok(found)
    }

    fn problem(&mut self, bdf: Bdf, problem: impl Into<Problem>) {
        self.problems.push((bdf, problem.into()));
    }
}
