//! The switch and the devices behind it: a drive at port 0, an accelerator at port 1.

use device_models::accelerator::{self, Accelerator};
use device_models::nvme::image::FileImage;
use device_models::nvme::{self, BlockSize, Nvme};
use device_models::{Classes, Device, ResetKind as DeviceReset};
use host_proxy::front::vm::Below;
use proxy_core::config_space::ResetKind;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::queue::TlpQueue;
use proxy_core::role::Backpressure;
use proxy_core::switch::{
    DownstreamVerdict, SwitchConfig, SwitchEvent, UpstreamVerdict, VirtualSwitch,
};
use proxy_core::time::Instant;
use proxy_daemon::{Clock, Idle, Spin};
use proxy_net::{Waiting, wait_any};
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{Class, MAX_TLP, Packet};

/// TLPs of the switch itself that wait for the root port. With less than [`RESERVE`] free it takes
/// none.
const TO_ROOT: usize = 128;
const RESERVE: usize = 8;

/// Longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A switch with devices.
pub(crate) struct Devices {
    switch: VirtualSwitch,
    devices: Vec<Box<dyn Device>>,
    to_root: TlpQueue,
    /// Completions that the switch answers a device's requests with.
    back: TlpQueue,
    clock: Clock,
    latest: Instant,
    idle: Idle,
    tlp: Box<[u8; MAX_TLP]>,
}

fn port(index: usize) -> PortId {
    PortId::new(index as u8).expect("two ports")
}

fn since_origin(now: Instant) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

impl Devices {
    /// The switch with both devices plugged, as at boot.
    ///
    /// # Errors
    ///
    /// A text that names the image.
    pub(crate) fn open(image: &Path, size: u64, spin: Spin) -> Result<Self, String> {
        let text = |e: std::io::Error| format!("image {}: {e}", image.display());
        if !image.exists() {
            File::create_new(image).and_then(|file| file.set_len(size)).map_err(text)?;
        }
        let image = FileImage::open(image, false).map_err(|e| e.to_string())?;
        let drive = Nvme::device(nvme::Config::default(), vec![(Box::new(image), BlockSize::B512)]);
        let accelerator = Accelerator::device(accelerator::Config::default());
        let devices: Vec<Box<dyn Device>> = vec![
            Box::new(drive.map_err(|e| e.to_string())?),
            Box::new(accelerator.map_err(|e| e.to_string())?),
        ];
        let config = SwitchConfig { ports: devices.len() as u8, ..SwitchConfig::default() };
        let mut this = Self {
            switch: VirtualSwitch::new(&config).map_err(|e| e.to_string())?,
            devices,
            to_root: TlpQueue::new(TO_ROOT),
            back: TlpQueue::new(RESERVE),
            clock: Clock::default(),
            latest: Instant::ZERO,
            idle: Idle::new(spin),
            tlp: Box::new([0; MAX_TLP]),
        };
        for index in 0..this.devices.len() {
            this.switch.plug(this.latest, port(index), &mut this.to_root);
        }
        Ok(this)
    }

    fn reset_device(&mut self, index: usize) {
        self.devices[index].handle_reset(since_origin(self.latest), DeviceReset::HotReset);
        self.switch.set_ready(port(index), true);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.switch.poll_event() {
            match event {
                SwitchEvent::SecondaryBusReset { port, asserted: true }
                | SwitchEvent::LinkDisabled { port, disabled: true } => {
                    self.reset_device(port.get().into());
                }
                SwitchEvent::SecondaryBusReset { port, asserted: false }
                | SwitchEvent::LinkDisabled { port, disabled: false } => {
                    self.switch.set_ready(port, true);
                }
                _ => {}
            }
        }
    }

    /// The next TLP of a device that goes to the root port.
    fn poll_device(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Option<usize> {
        while self.to_root.room() >= RESERVE {
            let device = &mut self.devices[index];
            let length = device.poll_tlp_of(since_origin(now), Classes::ALL, &mut self.tlp[..])?;
            let tlp = &mut self.tlp[..length];
            let verdict = self.switch.handle_upstream(
                now,
                port(index),
                tlp,
                &mut self.to_root,
                &mut self.back,
            );
            while let Some(answer) = self.back.front() {
                device.handle_tlp(since_origin(now), answer);
                self.back.drop_front();
            }
            match verdict {
                UpstreamVerdict::ToRoot => {
                    buf[..length].copy_from_slice(tlp);
                    return Some(length);
                }
                UpstreamVerdict::ToPort(to) => {
                    self.devices[usize::from(to.get())].handle_tlp(since_origin(now), tlp);
                }
                UpstreamVerdict::Consumed | UpstreamVerdict::Discarded(_) => {}
            }
        }
        None
    }
}

impl Below for Devices {
    fn note_read(&mut self) {
        self.idle.note_read(self.latest);
    }

    fn now(&mut self) -> Instant {
        self.latest = self.clock.now();
        self.latest
    }

    fn latest(&self) -> Instant {
        self.latest
    }

    fn receive(&mut self) -> Result<bool, String> {
        let now = self.now();
        let mut busy = false;
        for device in &mut self.devices {
            if device.poll_timeout().is_some_and(|at| at <= since_origin(now)) {
                device.handle_timeout(since_origin(now));
                busy = true;
            }
        }
        if self.switch.poll_timeout().is_some_and(|at| at <= now) {
            self.switch.handle_timeout(now, &mut self.to_root);
            busy = true;
        }
        self.take_events();
        Ok(busy)
    }

    fn handle_tlp(&mut self, now: Instant, tlp: &[u8]) -> Result<(), Backpressure> {
        let class = Packet::new_header_checked(tlp).ok().and_then(|packet| packet.class());
        let full = self
            .devices
            .iter()
            .any(|device| class.is_some_and(|class: Class| !device.can_take(class)));
        if self.to_root.room() < RESERVE || full {
            return Err(Backpressure);
        }
        let mut scratch = [0; TLP_BUFFER];
        let came = tlp;
        let tlp = match scratch.get_mut(..tlp.len()) {
            Some(room) => {
                room.copy_from_slice(tlp);
                room
            }
            None => return Ok(()),
        };
        match self.switch.handle_downstream(now, tlp, &mut self.to_root) {
            DownstreamVerdict::Forward(port) => {
                self.devices[usize::from(port.get())].handle_tlp(since_origin(now), tlp);
                self.switch.forwarded(port, &Packet::known(came), &mut self.to_root);
            }
            DownstreamVerdict::Broadcast => {
                for device in &mut self.devices {
                    device.handle_tlp(since_origin(now), tlp);
                }
            }
            _ => {}
        }
        self.take_events();
        Ok(())
    }

    fn poll_tlp(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        if let Some(length) = self.to_root.pop(buf) {
            return Some(length);
        }
        (0..self.devices.len()).find_map(|index| self.poll_device(now, index, buf))
    }

    fn handle_reset(&mut self, kind: ResetKind) {
        self.switch.handle_reset(kind);
        self.to_root.clear();
        for index in 0..self.devices.len() {
            self.reset_device(index);
        }
        self.take_events();
    }

    fn switch(&self) -> Option<&VirtualSwitch> {
        Some(&self.switch)
    }

    fn wants_counters(&self) -> bool {
        false
    }

    fn set_counters(&mut self, _counters: Vec<(&'static str, u64)>) {}

    fn transmit(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    fn rest(
        &mut self,
        busy: bool,
        timer: Option<Instant>,
        others: &[Waiting<'_>],
    ) -> Result<(), String> {
        if busy {
            self.idle.end();
            return Ok(());
        }
        let now = self.latest;
        if self.idle.looks(now) {
            self.idle.let_others(now);
            std::hint::spin_loop();
            return Ok(());
        }
        let devices = self.devices.iter().filter_map(|device| device.poll_timeout());
        let devices = devices.map(|at| Instant::from_nanos(at.as_nanos() as u64));
        let next = timer.into_iter().chain(devices).chain(self.switch.poll_timeout()).min();
        let until = next.map_or(LONGEST_SLEEP, |at| at.saturating_since(now));
        wait_any(std::iter::empty(), others, until.min(LONGEST_SLEEP)).map_err(|e| e.to_string())
    }
}
