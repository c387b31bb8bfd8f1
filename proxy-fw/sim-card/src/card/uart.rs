//! The console: a 16550 (National Semiconductor PC16550D) whose line takes no time.

use std::collections::VecDeque;

/// Bytes that wait to be taken from the console. When so many do, the transmitter is busy.
pub const OUTPUT_LIMIT: usize = 64 << 10;
/// Bytes of the receive FIFO. What finds it full is not taken.
const FIFO: usize = 16;

const DIVISOR_LATCH: u8 = 0x80;
const INTERRUPT_RECEIVED: u8 = 1;
const INTERRUPT_EMPTY: u8 = 2;

/// Line status.
const DATA_READY: u8 = 1;
const TRANSMITTER_EMPTY: u8 = 0x60;

#[derive(Debug, Default)]
pub(super) struct Uart {
    output: Vec<u8>,
    received: VecDeque<u8>,
    divisor: [u8; 2],
    interrupts: u8,
    fifos: bool,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    /// The transmitter became empty, and firmware was not told yet.
    empty_pending: bool,
}

impl Uart {
    /// What was sent stays for who takes it.
    pub(super) fn reset(&mut self) {
        *self = Self { output: std::mem::take(&mut self.output), ..Self::default() };
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        if !self.is_empty() {
            self.empty_pending = true;
        }
        std::mem::take(&mut self.output)
    }

    pub(super) fn input(&mut self, bytes: &[u8]) -> usize {
        let room = FIFO - self.received.len();
        let taken = bytes.len().min(room);
        self.received.extend(&bytes[..taken]);
        taken
    }

    fn is_empty(&self) -> bool {
        self.output.len() < OUTPUT_LIMIT
    }

    /// The interrupt identification: received data before the empty transmitter.
    fn identification(&self) -> u8 {
        if self.interrupts & INTERRUPT_RECEIVED != 0 && !self.received.is_empty() {
            4
        } else if self.interrupts & INTERRUPT_EMPTY != 0 && self.empty_pending {
            2
        } else {
            1
        }
    }

    pub(super) fn interrupt(&self) -> bool {
        self.identification() != 1
    }

    pub(super) fn read(&mut self, register: u32) -> u8 {
        let latch = self.line_control & DIVISOR_LATCH != 0;
        match register {
            0 | 1 if latch => self.divisor[register as usize],
            0 => self.received.pop_front().unwrap_or(0),
            1 => self.interrupts,
            2 => {
                let identification = self.identification();
                if identification == 2 {
                    self.empty_pending = false;
                }
                identification | if self.fifos { 0xc0 } else { 0 }
            }
            3 => self.line_control,
            4 => self.modem_control,
            5 => {
                let ready = if self.received.is_empty() { 0 } else { DATA_READY };
                ready | if self.is_empty() { TRANSMITTER_EMPTY } else { 0 }
            }
            // Clear to send, data set ready, carrier.
            6 => 0xb0,
            7 => self.scratch,
            _ => 0,
        }
    }

    pub(super) fn write(&mut self, register: u32, value: u8) {
        let latch = self.line_control & DIVISOR_LATCH != 0;
        match register {
            0 | 1 if latch => self.divisor[register as usize] = value,
            0 => {
                // What is written to a transmitter that is not empty is lost.
                if self.is_empty() {
                    self.output.push(value);
                }
                self.empty_pending = self.is_empty();
            }
            1 => {
                let turned_on = value & !self.interrupts & INTERRUPT_EMPTY != 0;
                self.empty_pending |= turned_on && self.is_empty();
                self.interrupts = value & 0xf;
            }
            2 => {
                self.fifos = value & 1 != 0;
                if value & 2 != 0 {
                    self.received.clear();
                }
            }
            3 => self.line_control = value,
            4 => self.modem_control = value & 0x1f,
            7 => self.scratch = value,
            _ => {}
        }
    }
}
