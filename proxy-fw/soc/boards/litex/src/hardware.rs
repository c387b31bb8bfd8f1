//! The card's registers, and what is there to be had from anywhere.

use crate::layout::{
    BOARD, EUI_48, I2C_RATE, IDENTITY, LAYOUT, MEMORY, MODULES, REGISTERS, SHARED, SPI_RATIO, VPD,
    VPD_LENGTH,
};
use card_regs::{Card, Mmio};
use proxy_core::time::Instant;
use soc::blocks::crc::{CrcEngine, Engine, Uncached, use_engine};
use soc::blocks::i2c::{I2cBus, I2cError};
use soc::blocks::spi::{SpiPort, SpiStuck};
use soc::blocks::timer::Timer;
use soc::blocks::uart::Console;
use soc::board::Patience;
use soc::flash::FlashError;
use soc::flash::spi::SpiFlash;
use soc::log;
use soc::peripherals::eeprom::{Addressing, Eeprom};
use soc::peripherals::vpd::Vpd;
use soc::settings::{self, Settings, SettingsError};
use soc::slots::Images;

/// The images that the flash has.
pub(crate) const IMAGES: Images = Images { board: BOARD, layout: LAYOUT, memory: MEMORY };

/// What carries out accesses to the registers.
pub(crate) type Registers = Mmio<{ card_regs::card::SIZE }>;

/// The card's registers.
pub(crate) const fn card() -> Card<Registers> {
    // SAFETY: the gateware has the card's registers there (src/layout.rs), and nothing else; the
    // drivers give its queues only memory that `shared` keeps for them, and the CRC engine only
    // reads.
    Card::at(unsafe { Mmio::new(REGISTERS) }, 0)
}

/// The time since the reset.
pub(crate) fn now() -> Instant {
    // An interrupt handler asks only when it does not come back.
    Timer::new(card().timer()).now()
}

/// The console.
pub(crate) fn console() -> Console<'static, Registers> {
    /// Of all that write there.
    static PATIENCE: Patience = Patience::new();
    Console::new(card().uart(), &PATIENCE)
}

/// The log's way out.
#[unsafe(no_mangle)]
fn dxpu_console(bytes: &[u8]) {
    console().write_bytes(bytes);
}

/// The log's clock.
#[unsafe(no_mangle)]
fn dxpu_microseconds() -> u64 {
    now().as_nanos() / 1000
}

/// The engine, which reaches what all blocks do: frames and TLPs are there where their CRCs are
/// wanted.
static CRC: CrcEngine<Registers, Uncached> =
    CrcEngine::new(card().crc(), Uncached::new(SHARED.start, SHARED.len));

/// CRCs are computed by the engine from now on. To be called where the gateware has one.
pub(crate) fn use_crc_engine() {
    static ENGINE: &dyn Engine = &CRC;
    let first = use_engine(&ENGINE);
    assert!(first, "there is one engine");
}

/// Ranges whose CRC the engine did not say.
pub(crate) fn crc_failures() -> u32 {
    CRC.failures()
}

/// The bus with the board's sensors and its identity.
pub(crate) fn sensors() -> I2cBus<Registers> {
    bus(0)
}

/// The bus of the network module's cage.
pub(crate) fn modules() -> I2cBus<Registers> {
    bus(MODULES)
}

#[inline(never)] // once, for all that use one
fn bus(number: usize) -> I2cBus<Registers> {
    let block = card().i2c(number).expect("there are two");
    let mut timer = Timer::new(card().timer());
    I2cBus::new(block, card().id().clock().read().hertz(), I2C_RATE, &mut timer)
}

/// Reads from the card's identity memory. It is asked twice: a bus may err, and one that a target still
/// holds is freed again.
#[inline(never)] // once, for all that is read
fn identity(at: u16, bytes: &mut [u8]) -> Result<(), I2cError> {
    let mut once = || Eeprom::new(sensors(), IDENTITY, Addressing::One).read(at, bytes);
    once().or_else(|_| once())
}

/// The address of the card's Ethernet port.
pub(crate) fn address() -> Result<[u8; 6], I2cError> {
    let mut address = [0; 6];
    identity(EUI_48, &mut address)?;
    Ok(address)
}

/// Says in the log what the card is called, where somebody has written it into its memory.
#[inline(never)] // its stack is needed once
pub(crate) fn tell_of_card() {
    let mut bytes = [0; VPD_LENGTH];
    if identity(VPD, &mut bytes).is_err() {
        return log!(warn, "vital product data: their memory does not answer");
    }
    match Vpd::parse(&bytes) {
        Ok(vpd) => log!(info, "this card is {}", defmt::Display2Format(&vpd)),
        Err(why) => log!(info, "no vital product data: {}", defmt::Display2Format(&why)),
    }
}

/// The flash.
pub(crate) type Flash = SpiFlash<SpiPort<Registers, Timer<Registers>>, Timer<Registers>>;

/// Asks the flash what it is. While it is open nobody reads it through its window in memory.
#[inline(never)] // once, for all that use it
pub(crate) fn open_flash() -> Result<Flash, FlashError<SpiStuck>> {
    let timer = Timer::new(card().timer());
    SpiFlash::new(SpiPort::new(card().spi(), timer, 0, SPI_RATIO), timer)
}

/// What the card was set to.
#[inline(never)] // its stack is needed once
pub(crate) fn settings() -> Result<Result<Settings, SettingsError>, FlashError<SpiStuck>> {
    let text = settings::load_twice(open_flash, LAYOUT.config())?;
    Ok(text.ok_or(SettingsError::None).and_then(|text| text.parse()))
}
