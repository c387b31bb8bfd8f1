//! Everything that the firmware of a card touches besides memory.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::crc::Crc;
use super::gpio::Gpio;
use super::i2c::I2c;
use super::id::Id;
use super::irq::Irq;
use super::mac::Mac;
use super::reset_control::ResetControl;
use super::spi::Spi;
use super::timer::Timer;
use super::tlp::Tlp;
use super::uart::Uart;
use super::watchdog::Watchdog;
use crate::Bus;

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x1800;
/// How many `i2c` there are.
pub const I2C_COUNT: usize = 2;
/// How many `mac` there are.
pub const MAC_COUNT: usize = 2;

/// Everything that the firmware of a card touches besides memory.
#[derive(Clone, Copy, Debug)]
pub struct Card<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Card<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// What the card is and what it can do. Nothing here changes while it runs.
    #[inline(always)]
    pub const fn id(self) -> Id<B> {
        Id::at(self.bus, self.base)
    }

    /// Resets of the core and its peripherals: why the last one came, and how to ask for one.
    #[inline(always)]
    pub const fn reset(self) -> ResetControl<B> {
        ResetControl::at(self.bus, self.base + 0x100)
    }

    /// Time since the reset, and an alarm. There is one timer, and it does not stop while the core
    /// sleeps.
    #[inline(always)]
    pub const fn timer(self) -> Timer<B> {
        Timer::at(self.bus, self.base + 0x200)
    }

    /// Resets the core unless it is fed. A debugger that halts the core stops the watchdog, too.
    #[inline(always)]
    pub const fn watchdog(self) -> Watchdog<B> {
        Watchdog::at(self.bus, self.base + 0x300)
    }

    /// Interrupts: the core's machine external interrupt is asserted while a source is both pending
    /// and enabled.
    #[inline(always)]
    pub const fn irq(self) -> Irq<B> {
        Irq::at(self.bus, self.base + 0x400)
    }

    /// CRC engine: reads a range of memory and gives its CRC, 4 bytes or more each cycle. There
    /// only if `id.capabilities` has it.
    #[inline(always)]
    pub const fn crc(self) -> Crc<B> {
        Crc::at(self.bus, self.base + 0x500)
    }

    /// The console: 8 data bits, no parity, 1 stop bit.
    #[inline(always)]
    pub const fn uart(self) -> Uart<B> {
        Uart::at(self.bus, self.base + 0x600)
    }

    /// SPI to the NOR flash: bytes in and out for commands, and a window in memory for reading.
    #[inline(always)]
    pub const fn spi(self) -> Spi<B> {
        Spi::at(self.bus, self.base + 0x700)
    }

    /// An I2C bus (NXP UM10204), of which this is the only controller. Bus 0 has the board's
    /// sensors and the vital product data, bus 1 the modules.
    ///
    /// None if `index` is not below [`I2C_COUNT`].
    #[inline(always)]
    pub const fn i2c(self, index: usize) -> Option<I2c<B>> {
        if index < I2C_COUNT {
            Some(I2c::at(self.bus, self.base + 0x800 + index as u32 * 0x40))
        } else {
            None
        }
    }

    /// Up to 32 pins, a bit for each. What each is for is the board's.
    #[inline(always)]
    pub const fn gpio(self) -> Gpio<B> {
        Gpio::at(self.bus, self.base + 0x900)
    }

    /// One Ethernet port. Frames of the fabric and all others have a receive queue each, so that
    /// neither takes the other's buffers.
    ///
    /// None if `index` is not below [`MAC_COUNT`].
    #[inline(always)]
    pub const fn mac(self, index: usize) -> Option<Mac<B>> {
        if index < MAC_COUNT {
            Some(Mac::at(self.bus, self.base + 0xa00 + index as u32 * 0x100))
        } else {
            None
        }
    }

    /// The user side of the PCIe block: one queue of TLPs in each direction for all slots.
    #[inline(always)]
    pub const fn tlp(self) -> Tlp<B> {
        Tlp::at(self.bus, self.base + 0x1000)
    }
}
