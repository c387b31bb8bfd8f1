//! A network interface at one of the machine's places for virtio devices (virtio 1.2, sections 4.2 and 5.1):
//! the register block, one queue of frames to the driver and one of frames from it. What the driver sends is
//! gone at once, and what comes waits until the driver has room for it.

mod queue;

use self::queue::{Broken, Queue};
use super::lanes;
use crate::iss::{AccessFault, Width};
use std::collections::VecDeque;

/// Bytes of the header in front of each frame.
const HEADER: usize = 12;
/// Where in it is how many buffers a frame is in.
const BUFFERS: usize = 10;

/// Frames that wait for room, beyond which they are lost.
const WAITING: usize = 256;

/// The queues, as they are numbered.
const TO_DRIVER: usize = 0;
const FROM_DRIVER: usize = 1;

/// What is offered: an address, a state of the link, events by index, and virtio 1.
const FEATURES: u64 = 1 << 5 | 1 << 16 | EVENT_IDX | 1 << 32;
const EVENT_IDX: u64 = 1 << 29;

/// Interrupt status: a queue has used buffers.
const USED: u32 = 1;
/// Device status: the driver has set it up.
const DRIVER_OK: u32 = 1 << 2;
/// Device status: a queue makes no sense, and only a reset helps.
const NEEDS_RESET: u32 = 1 << 6;

/// What a register block that answers begins with: magic value, version, and vendor, which is QEMU's.
const MAGIC: u32 = 0x7472_6976;
const VERSION: u32 = 2;
const VENDOR: u32 = 0x554d_4551;
/// A network device.
const NETWORK: u32 = 1;

/// A place without a device: device 0 (section 4.2.2).
pub(super) fn empty(register: u32) -> u32 {
    match register {
        0x0 => MAGIC,
        0x4 => VERSION,
        0xc => VENDOR,
        _ => 0,
    }
}

/// An interface.
#[derive(Debug)]
pub(super) struct Interface {
    address: [u8; 6],
    status: u32,
    /// Which halves of the features the registers show and take, and what was agreed.
    offered_half: u32,
    agreed_half: u32,
    agreed: u64,
    selected: u32,
    queues: [Queue; 2],
    interrupt: u32,
    waiting: VecDeque<Vec<u8>>,
    sent: Vec<(u64, Vec<u8>)>,
    lost: u64,
}

impl Interface {
    /// One with this Ethernet address.
    pub(super) fn new(address: [u8; 6]) -> Self {
        Self {
            address,
            status: 0,
            offered_half: 0,
            agreed_half: 0,
            agreed: 0,
            selected: 0,
            queues: Default::default(),
            interrupt: 0,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            lost: 0,
        }
    }

    /// What was sent stays sent; what waits for the driver is of the life before.
    pub(super) fn reset(&mut self) {
        let (sent, lost) = (std::mem::take(&mut self.sent), self.lost);
        *self = Self { sent, lost, ..Self::new(self.address) };
    }

    /// The line to the interrupt controller.
    pub(super) fn interrupt(&self) -> bool {
        self.interrupt != 0
    }

    /// Frames that were sent, and the tick of each.
    pub(super) fn take_sent(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.sent)
    }

    /// Frames for which the driver had no room, nor was there room to wait.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// A frame comes from the network.
    pub(super) fn deliver(&mut self, frame: Vec<u8>, ram: &mut [u8]) {
        if self.waiting.len() == WAITING {
            self.lost += 1;
            return;
        }
        self.waiting.push_back(frame);
        self.checked(|this| this.receive(ram));
    }

    pub(super) fn read(&self, at: u32, width: Width) -> Result<u32, AccessFault> {
        lanes(at, width, |at| Ok(self.register(at)))
    }

    fn register(&self, register: u32) -> u32 {
        let [a, b, c, d, e, f] = self.address;
        match register {
            0x008 => NETWORK,
            0x010 => half(FEATURES, self.offered_half),
            0x034 if self.queue().is_some() => queue::LARGEST.into(),
            0x044 => self.queue().is_some_and(Queue::is_ready).into(),
            0x060 => self.interrupt,
            0x070 => self.status,
            // The address, and behind it that the link is up.
            0x100 => u32::from_le_bytes([a, b, c, d]),
            0x104 => u32::from_le_bytes([e, f, 1, 0]),
            _ => empty(register),
        }
    }

    fn queue(&self) -> Option<&Queue> {
        self.queues.get(self.selected as usize)
    }

    /// Registers are written whole.
    pub(super) fn write(&mut self, register: u32, value: u32, ram: &mut [u8], ticks: u64) {
        match register {
            0x014 => self.offered_half = value,
            0x020 => self.agree(value),
            0x024 => self.agreed_half = value,
            0x030 => self.selected = value,
            0x050 => self.checked(|this| match value as usize {
                TO_DRIVER => this.receive(ram),
                FROM_DRIVER => this.send(ram, ticks),
                _ => Ok(()),
            }),
            0x064 => self.interrupt &= !value,
            0x070 if value == 0 => self.reset(),
            0x070 => self.status = self.status & NEEDS_RESET | value,
            0x038 | 0x044 | 0x080..=0x0a4 => {
                let by_index = self.agreed & EVENT_IDX != 0;
                if let Some(queue) = self.queues.get_mut(self.selected as usize) {
                    queue.set(register, value, by_index);
                }
            }
            _ => {}
        }
    }

    fn agree(&mut self, value: u32) {
        let (shift, offered) = match self.agreed_half {
            0 => (0, FEATURES as u32),
            1 => (32, (FEATURES >> 32) as u32),
            _ => return,
        };
        let kept = self.agreed & !(u64::from(u32::MAX) << shift);
        self.agreed = kept | u64::from(value & offered) << shift;
    }

    /// Does something with the queues, if the driver has set them up.
    fn checked(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Broken>) {
        if self.status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK && work(self).is_err() {
            self.status |= NEEDS_RESET;
        }
    }

    /// Gives the driver what waits, as far as it has room.
    fn receive(&mut self, ram: &mut [u8]) -> Result<(), Broken> {
        let queue = &mut self.queues[TO_DRIVER];
        while !self.waiting.is_empty()
            && let Some(chain) = queue.next(ram)?
        {
            let Some(frame) = self.waiting.pop_front() else { break };
            let mut bytes = vec![0; HEADER];
            bytes[BUFFERS] = 1;
            bytes.extend(frame);
            let written = queue.put(ram, chain, &bytes)?;
            self.lost += u64::from(!written);
            if queue.give_back(ram, chain, if written { bytes.len() } else { 0 })? {
                self.interrupt |= USED;
            }
        }
        Ok(())
    }

    /// Takes what the driver wants to be sent.
    fn send(&mut self, ram: &mut [u8], ticks: u64) -> Result<(), Broken> {
        let queue = &mut self.queues[FROM_DRIVER];
        while let Some(chain) = queue.next(ram)? {
            let bytes = queue.get(ram, chain)?;
            if let Some(frame) = bytes.get(HEADER..).filter(|frame| !frame.is_empty()) {
                self.sent.push((ticks, frame.to_vec()));
            }
            if queue.give_back(ram, chain, 0)? {
                self.interrupt |= USED;
            }
        }
        Ok(())
    }
}

/// Half of the features: 0 is the low one.
fn half(features: u64, which: u32) -> u32 {
    match which {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
