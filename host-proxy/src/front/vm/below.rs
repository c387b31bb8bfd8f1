//! What is below the adapter: a switch, and whatever turns it.

use proxy_core::config_space::ResetKind;
use proxy_core::host::HostRole;
use proxy_core::role::{Backpressure, Role};
use proxy_core::switch::VirtualSwitch;
use proxy_core::time::Instant;
use proxy_daemon::plane::Plane;
use proxy_net::Waiting;

/// A switch below the adapter, with its devices or the way to them. Whoever runs the adapter calls
/// these in turn: receive, TLPs in both directions, transmit, rest.
pub trait Below {
    /// The time now.
    fn now(&mut self) -> Instant;

    /// The time as last read.
    fn latest(&self) -> Instant;

    /// Takes in what arrived by itself. Whether there was anything.
    ///
    /// # Errors
    ///
    /// When it is broken for good.
    fn receive(&mut self) -> Result<bool, String>;

    /// Takes a TLP from the root port.
    ///
    /// # Errors
    ///
    /// [`Backpressure`] when there is no room now: the same TLP comes again.
    fn handle_tlp(&mut self, now: Instant, tlp: &[u8]) -> Result<(), Backpressure>;

    /// How many of the TLPs that it took it has given up, for devices that take nothing.
    fn given_up(&self) -> u64 {
        0
    }

    /// The next TLP for the root port, written into `buf`; its length.
    fn poll_tlp(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize>;

    /// The machine's processor reads a register, or what else is behind the adapter. Who looks for
    /// more before it sleeps may look longer then.
    fn note_read(&mut self) {}

    /// The root port is reset, or its link.
    fn handle_reset(&mut self, kind: ResetKind);

    /// A machine is there, or none is any more; also said again while that is so. Whoever has
    /// nobody to tell does nothing.
    fn set_root_complex(&mut self, present: bool) {
        let _ = present;
    }

    /// The switch; `None` where it is in another machine, and which device a TLP is for cannot be
    /// told.
    fn switch(&self) -> Option<&VirtualSwitch>;

    /// Whether it is time to [`set_counters`](Below::set_counters).
    fn wants_counters(&self) -> bool;

    /// What was counted above.
    fn set_counters(&mut self, counters: Vec<(&'static str, u64)>);

    /// Sends what is to be sent. Whether there was anything.
    ///
    /// # Errors
    ///
    /// When it is broken for good.
    fn transmit(&mut self) -> Result<bool, String>;

    /// Sleeps after a turn that was not busy: until something comes, it is `timer`, or one of
    /// `others` is ready.
    ///
    /// # Errors
    ///
    /// When it is broken for good.
    fn rest(
        &mut self,
        busy: bool,
        timer: Option<Instant>,
        others: &[Waiting<'_>],
    ) -> Result<(), String>;
}

impl Below for Plane<HostRole> {
    fn note_read(&mut self) {
        Self::note_read(self);
    }

    fn now(&mut self) -> Instant {
        Self::now(self)
    }

    fn latest(&self) -> Instant {
        Self::latest(self)
    }

    fn receive(&mut self) -> Result<bool, String> {
        Self::receive(self).map_err(|e| e.to_string())
    }

    fn handle_tlp(&mut self, now: Instant, tlp: &[u8]) -> Result<(), Backpressure> {
        self.role.handle_tlp(now, tlp)?;
        mark(self);
        Ok(())
    }

    fn given_up(&self) -> u64 {
        self.role.given_up()
    }

    fn poll_tlp(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        let length = self.role.poll_tlp(now, buf)?;
        mark(self);
        Some(length)
    }

    fn handle_reset(&mut self, kind: ResetKind) {
        let now = Self::now(self);
        self.role.handle_reset(now, kind);
    }

    fn set_root_complex(&mut self, present: bool) {
        self.role.set_root_complex(present);
    }

    fn switch(&self) -> Option<&VirtualSwitch> {
        Some(self.role.switch())
    }

    fn wants_counters(&self) -> bool {
        self.role.is_asked_for_counters()
    }

    fn set_counters(&mut self, counters: Vec<(&'static str, u64)>) {
        self.set_device_counters(counters);
    }

    fn transmit(&mut self) -> Result<bool, String> {
        Self::transmit(self).map_err(|e| e.to_string())
    }

    fn rest(
        &mut self,
        busy: bool,
        timer: Option<Instant>,
        others: &[Waiting<'_>],
    ) -> Result<(), String> {
        self.rest_with(busy, timer, others).map_err(|e| e.to_string())
    }
}

fn mark(plane: &mut Plane<HostRole>) {
    if plane.role.wants_mark() {
        let now = plane.now();
        plane.role.mark(now);
    }
}
