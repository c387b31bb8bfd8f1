//! The card's registers, and what is there to be had from anywhere.

use crate::layout::{EUI_48, I2C_RATE, IDENTITY, LAYOUT, REGISTERS, SPI_RATIO};
use card_regs::{Card, Mmio};
use proxy_core::time::Instant;
use soc::blocks::i2c::{I2cBus, I2cError};
use soc::blocks::spi::{SpiPort, SpiStuck};
use soc::blocks::timer::Timer;
use soc::blocks::uart::Console;
use soc::flash::FlashError;
use soc::flash::spi::SpiFlash;
use soc::peripherals::eeprom::{Addressing, Eeprom};
use soc::settings::{self, Settings, SettingsError};

/// What carries out accesses to the registers.
pub(crate) type Registers = Mmio<{ card_regs::card::SIZE }>;

/// The card's registers.
pub(crate) fn card() -> Card<Registers> {
    // SAFETY: the gateware has the card's registers there (src/layout.rs), and nothing else; the
    // drivers give its queues only memory that `shared` keeps for them.
    Card::at(unsafe { Mmio::new(REGISTERS) }, 0)
}

/// The time since the reset.
pub(crate) fn now() -> Instant {
    // An interrupt handler asks only when it does not come back.
    Timer::new(card().timer()).now()
}

/// The log's way out.
#[unsafe(no_mangle)]
fn dxpu_console(bytes: &[u8]) {
    Console::new(card().uart()).write_bytes(bytes);
}

/// The log's clock.
#[unsafe(no_mangle)]
fn dxpu_microseconds() -> u64 {
    now().as_nanos() / 1000
}

/// The bus with the board's sensors and its identity.
pub(crate) fn sensors() -> I2cBus<Registers> {
    let block = card().i2c(0).expect("the block has two");
    I2cBus::new(block, card().id().clock().read().hertz(), I2C_RATE)
}

/// The address of the card's Ethernet port.
pub(crate) fn address() -> Result<[u8; 6], I2cError> {
    let mut address = [0; 6];
    Eeprom::new(sensors(), IDENTITY, Addressing::One).read(EUI_48, &mut address)?;
    Ok(address)
}

/// What the card was set to.
pub(crate) fn settings() -> Result<Result<Settings, SettingsError>, FlashError<SpiStuck>> {
    let timer = Timer::new(card().timer());
    let mut flash = SpiFlash::new(SpiPort::new(card().spi(), timer, 0, SPI_RATIO), timer)?;
    let text = settings::load(&mut flash, LAYOUT.config())?;
    Ok(text.ok_or(SettingsError::None).and_then(|text| text.parse()))
}
