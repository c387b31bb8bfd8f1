//! The card's registers, as far as a start needs them: a queue runs while it is enabled, the link of the network port is down, and nothing is at the PCIe side.

use card_regs::crc::{Start, Status as CrcStatus};
use card_regs::frame_descriptor::Status as FrameStatus;
use card_regs::i2c::Status as I2cStatus;
use card_regs::id::Capabilities;
use card_regs::queue::Error as QueueError;
use card_regs::values::{CrcAlgorithm, PayloadSize, ResetCause};
use card_regs::{Bits, REGISTERS as MAP};
use std::collections::BTreeMap;

use super::{Litex, MODULE_ABSENT, SPI};
use crate::iss::AccessFault;

/// The key of a request for a reset (`reset_control.request`).
const RESET_KEY: u32 = 0xd0ff;

/// `i2c.status`: SCL and SDA are high, since nothing holds them.
const LINES_HIGH: u32 = I2cStatus::from_bits(0).with_scl(true).with_sda(true).bits();

/// The largest size of a queue's ring, as a power of two.
const MAX_ORDER: u32 = 15;

/// Registers by address: their names, and what they hold.
pub(super) type Registers = BTreeMap<u32, (&'static str, u32)>;

/// All of them as a reset leaves them, with what the gateware says of itself.
pub(super) fn after_reset() -> Registers {
    let capabilities = Capabilities::from_bits(0)
        .with_host_role(true)
        .with_box_role(true)
        .with_slots(Bits::new(16).expect("16"))
        .with_ports(Bits::new(1).expect("1"))
        .with_i2c_buses(Bits::new(2).expect("2"))
        .with_queue_order(Bits::new(8).expect("8"))
        .with_max_payload(PayloadSize::Bytes4096);
    let of_board = [
        ("id.board[0]", u32::from_le_bytes(*b"lite")),
        ("id.board[1]", u32::from(b'x')),
        ("id.capabilities", capabilities.bits()),
        ("id.clock", 100_000_000),
        ("gpio.input", 1 << MODULE_ABSENT),
    ];
    let value = |path, reset| {
        let said = of_board.iter().find(|(name, _)| *name == path);
        said.map_or(reset, |(_, value)| *value)
    };
    MAP.iter().map(|info| (info.address, (info.path, value(info.path, info.reset)))).collect()
}

/// Whether a block is a queue.
fn is_queue(path: &str) -> bool {
    path.starts_with("tlp.") && !path.contains("slot")
        || path.starts_with("mac") && path.contains('.')
}

/// Whether software can ask for a reset for this cause; for others there is none.
fn is_for_software(cause: u32) -> bool {
    [ResetCause::Software, ResetCause::Panic].map(|cause| cause.bits()).contains(&cause)
}

impl Litex {
    /// What a register holds, by its path in the map.
    ///
    /// # Panics
    ///
    /// When there is no such register.
    pub fn register(&mut self, path: &str) -> &mut u32 {
        let mut found = self.registers.values_mut().filter(|(name, _)| *name == path);
        &mut found.next().expect(path).1
    }

    pub(super) fn read_register(&mut self, address: u32) -> Result<u32, AccessFault> {
        if SPI.contains(&address) {
            return self.spi.read(address - SPI.start);
        }
        let (name, value) = *self.registers.get(&address).ok_or(AccessFault)?;
        Ok(match name {
            "timer.low" => {
                self.timer_high = (self.nanos() >> 32) as u32;
                self.nanos() as u32
            }
            "timer.high" => self.timer_high,
            "irq.pending" => self.pending,
            "irq.enable" => self.enabled,
            _ => match name.strip_prefix("watchdog.") {
                Some(register) => self.watchdog.read(register, self.ticks),
                None => value,
            },
        })
    }

    pub(super) fn write_register(&mut self, address: u32, value: u32) -> Result<(), AccessFault> {
        if SPI.contains(&address) {
            return self.spi.write(address - SPI.start, value, &mut self.flash, self.ticks);
        }
        let (name, before) = *self.registers.get(&address).ok_or(AccessFault)?;
        self.registers.insert(address, (name, value));
        match name {
            "irq.pending" => self.pending &= !value,
            "irq.enable" => self.enabled = value,
            "uart.transmit" => self.console.push(value as u8),
            "timer.alarm_low" => self.alarm = u64::MAX,
            "timer.alarm_high" => {
                self.alarm = u64::from(value) << 32 | u64::from(*self.register("timer.alarm_low"));
            }
            "crc.start" => self.compute(Start::from_bits(value)),
            "reset.request" if value >> 16 == RESET_KEY && is_for_software(value & 7) => {
                self.reset_for(value & 7);
            }
            "i2c[0].command" => {
                *self.register("i2c[0].status") = self.eeprom.carry_out(value) | LINES_HIGH;
            }
            "mac[0].transmit.tail" => self.throw_away(before, value),
            _ => self.write_block(name, address, before, value),
        }
        Ok(())
    }

    /// What is the same for many registers of a kind.
    fn write_block(&mut self, name: &'static str, address: u32, before: u32, value: u32) {
        if let Some(register) = name.strip_prefix("watchdog.") {
            if self.watchdog.write(register, value, self.ticks) {
                self.bitten();
            }
        } else if let Some(path) = name.strip_suffix(".control").filter(|path| is_queue(path)) {
            *self.register(&format!("{path}.status")) = value & 1;
            if value & !before & 1 != 0 {
                *self.register(&format!("{path}.head")) = 0;
                *self.register(&format!("{path}.tail")) = 0;
            }
        } else if name.ends_with(".error") {
            // What is written as 1 is cleared.
            self.registers.insert(address, (name, before & !value));
        }
    }

    /// What the port is given to send, from one position of its ring to another: it sends nothing, since
    /// its link is down, and says so. A ring that cannot be stops the queue.
    fn throw_away(&mut self, from: u32, to: u32) {
        let (base, order) =
            (*self.register("mac[0].transmit.base"), *self.register("mac[0].transmit.size"));
        let (from, to) = (from as u16, to as u16);
        let count = to.wrapping_sub(from);
        let ring = 1_u32.checked_shl(order).filter(|_| order <= MAX_ORDER).unwrap_or(0);
        if u32::from(count) > ring {
            return self.stop_sending(QueueError::RESET.with_tail(true));
        }
        for position in (0..count).map(|n| from.wrapping_add(n)) {
            let at = base.wrapping_add(16 * (u32::from(position) & (ring - 1)) + 8);
            let done = FrameStatus::from_bits(0).with_aborted(true).bits();
            let Some(word) = self.memory(at, 4) else {
                return self.stop_sending(QueueError::RESET.with_bus(true));
            };
            word.copy_from_slice(&done.to_le_bytes());
        }
        *self.register("mac[0].transmit.head") = to.into();
    }

    fn stop_sending(&mut self, error: QueueError) {
        *self.register("mac[0].transmit.error") |= error.bits();
        *self.register("mac[0].transmit.status") = 0;
    }

    /// The CRC engine's answer, which is there at once.
    fn compute(&mut self, start: Start) {
        let polynomial = match start.algorithm() {
            CrcAlgorithm::Crc32c => 0x82f6_3b78,
            _ => 0xedb8_8320,
        };
        let before = if start.continued() { *self.register("crc.seed") } else { 0 };
        let source = *self.register("crc.source");
        let bytes = self.memory(source, start.length().into()).map(|bytes| bytes.to_vec());
        *self.register("crc.status") = CrcStatus::RESET.with_error(bytes.is_none()).bits();
        let Some(bytes) = bytes else { return };
        *self.register("crc.result") = !crc(!before, polynomial, &bytes);
        self.crcs.push((start.algorithm(), bytes));
    }
}

/// A reflected CRC of 32 bits, from a register's value on.
fn crc(before: u32, polynomial: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(before, |register, byte| {
        (0..8).fold(register ^ u32::from(*byte), |register, _| {
            register >> 1 ^ if register & 1 == 1 { polynomial } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_engines_crcs_have_their_check_values() {
        for (polynomial, check) in [(0xedb8_8320, 0xcbf4_3926), (0x82f6_3b78, 0xe306_9283)] {
            assert_eq!(!super::crc(!0, polynomial, b"123456789"), check);
        }
    }
}
