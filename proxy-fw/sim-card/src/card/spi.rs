//! The SPI block of the card's register map (`hw/regs/card.md`, "spi"), whose bytes take no time.

use std::collections::VecDeque;

use card_regs::spi::{Control, Divider, Receive, Status, Window};

use crate::iss::AccessFault;

/// Bytes of each FIFO.
const FIFO: usize = 16;

const CONTROL: u32 = 0x00;
const DIVIDER: u32 = 0x04;
const TRANSMIT: u32 = 0x08;
const RECEIVE: u32 = 0x0c;
const STATUS: u32 = 0x10;
const ERROR: u32 = 0x14;
const WINDOW: u32 = 0x18;
const WINDOW_BASE: u32 = 0x1c;
const WINDOW_SIZE: u32 = 0x20;

const OVERRUN: u32 = 1;

/// What is at the block's bus.
pub(super) trait Parts {
    /// Selects parts, a bit for each, and deselects the others.
    fn select(&mut self, before: u32, now: u32, ticks: u64);

    /// Exchanges a byte with the parts that are selected.
    fn exchange(&mut self, selected: u32, byte: u8, ticks: u64) -> u8;
}

#[derive(Debug)]
pub(super) struct Spi {
    control: Control,
    divider: Divider,
    window: Window,
    received: VecDeque<u8>,
    overrun: bool,
    window_base: u32,
    window_size: u32,
}

impl Spi {
    /// The block after a reset; where its window is, and how large in bytes.
    pub(super) fn new(window_base: u32, window_size: u32) -> Self {
        Self {
            control: Control::RESET,
            divider: Divider::RESET,
            window: Window::RESET,
            received: VecDeque::new(),
            overrun: false,
            window_base,
            window_size,
        }
    }

    pub(super) fn window_is_open(&self) -> bool {
        self.window.enable()
    }

    /// Chip selects that are asserted: none while the window is open.
    fn selected(&self) -> u32 {
        if self.window_is_open() { 0 } else { u32::from(self.control.chip_select()) }
    }

    pub(super) fn read(&mut self, register: u32) -> Result<u32, AccessFault> {
        Ok(match register {
            CONTROL => self.control.bits(),
            DIVIDER => self.divider.bits(),
            TRANSMIT => 0,
            RECEIVE if self.window_is_open() => 0,
            RECEIVE => match self.received.pop_front() {
                Some(byte) => Receive::from_bits(0).with_data(byte).with_valid(true).bits(),
                None => 0,
            },
            STATUS => Status::from_bits(0)
                .with_transmit_room(FIFO as u8)
                .with_receive_level(self.received.len() as u8)
                .bits(),
            ERROR => u32::from(self.overrun) * OVERRUN,
            WINDOW => self.window.bits(),
            WINDOW_BASE => self.window_base,
            WINDOW_SIZE => self.window_size,
            _ => return Err(AccessFault),
        })
    }

    pub(super) fn write(
        &mut self,
        register: u32,
        value: u32,
        parts: &mut impl Parts,
        ticks: u64,
    ) -> Result<(), AccessFault> {
        let selected = self.selected();
        match register {
            CONTROL | TRANSMIT if self.window_is_open() => {}
            CONTROL => {
                self.control = Control::RESET
                    .with_enable(Control::from_bits(value).enable())
                    .with_polarity(Control::from_bits(value).polarity())
                    .with_phase(Control::from_bits(value).phase())
                    .with_chip_select(Control::from_bits(value).chip_select());
                if !self.control.enable() {
                    self.received.clear();
                }
            }
            DIVIDER => self.divider = Divider::RESET.with_ratio(value as u16),
            TRANSMIT if self.control.enable() => {
                self.take(parts.exchange(selected, value as u8, ticks));
            }
            ERROR if value & OVERRUN != 0 => self.overrun = false,
            WINDOW => self.window = Window::from_bits(value & 0xfff3),
            TRANSMIT | RECEIVE | STATUS | ERROR | WINDOW_BASE | WINDOW_SIZE => {}
            _ => return Err(AccessFault),
        }
        parts.select(selected, self.selected(), ticks);
        Ok(())
    }

    fn take(&mut self, byte: u8) {
        if self.received.len() < FIFO {
            self.received.push_back(byte);
        } else {
            self.overrun = true;
        }
    }
}
