//! Where everything is: as on QEMU's riscv32 machine `virt` (`hw/riscv/virt.c`, QEMU 7.2), and the
//! card's own SPI block beside it.

use super::clint::Clint;
use super::flash::{BANKS, Flash};
use super::plic::Plic;
use super::spi::Spi;
use super::uart::Uart;
use super::virtio::{self, Interface};
use super::{Finish, lanes};
use crate::debug::System;
use crate::iss::{AccessFault, Bus, Interrupts, Width};

/// The test finisher.
pub const FINISHER_BASE: u32 = 0x0010_0000;
/// Timer and software interrupt (CLINT).
pub const CLINT_BASE: u32 = 0x0200_0000;
/// Interrupt controller (PLIC).
pub const PLIC_BASE: u32 = 0x0c00_0000;
/// The console, a 16550.
pub const UART_BASE: u32 = 0x1000_0000;
/// Eight places for virtio devices, which are empty unless an interface is [plugged](Virt::plug) in.
pub const VIRTIO_BASE: u32 = 0x1000_1000;
/// So many, and bytes of each.
const VIRTIO_PLACES: usize = 8;
const VIRTIO_PLACE: u32 = 0x1000;
/// The SPI block of the card's register map; chip select n is bank n of the flash.
pub const SPI_BASE: u32 = 0x1001_0000;
/// The flash, one bank behind the other. The core's first instruction is its first word.
pub const FLASH_BASE: u32 = 0x2000_0000;
/// Bytes of a bank.
pub const FLASH_BANK: u32 = super::FLASH_PART.size;
/// Memory.
pub const RAM_BASE: u32 = 0x8000_0000;
/// Bytes of memory.
pub const RAM_SIZE: u32 = 8 << 20;

const FINISHER_LAST: u32 = FINISHER_BASE + 0xfff;
const CLINT_LAST: u32 = CLINT_BASE + 0xffff;
const PLIC_LAST: u32 = PLIC_BASE + 0x5f_ffff;
const UART_LAST: u32 = UART_BASE + 0xff;
const VIRTIO_LAST: u32 = VIRTIO_BASE + 0x7fff;
const SPI_LAST: u32 = SPI_BASE + card_regs::spi::SIZE - 1;
const FLASH_LAST: u32 = FLASH_BASE + BANKS as u32 * FLASH_BANK - 1;

/// Interrupt source of the console.
const UART_SOURCE: u32 = 10;
/// That of the first place for virtio devices; the others have those behind it.
const VIRTIO_SOURCE: u32 = 1;

/// Everything but the core.
#[derive(Debug)]
pub struct Virt {
    ram: Vec<u8>,
    ticks: u64,
    /// When the timer's interrupt begins.
    timer_due: u64,
    /// A device was accessed: its interrupt may be another.
    touched: bool,
    finished: Option<Finish>,
    reset_request: bool,
    clint: Clint,
    plic: Plic,
    uart: Uart,
    spi: Spi,
    flash: Flash,
    interfaces: [Option<Interface>; VIRTIO_PLACES],
}

impl Virt {
    pub(super) fn new() -> Self {
        Self {
            ram: vec![0; RAM_SIZE as usize],
            ticks: 0,
            timer_due: u64::MAX,
            touched: true,
            finished: None,
            reset_request: false,
            clint: Clint::default(),
            plic: Plic::default(),
            uart: Uart::default(),
            spi: block(),
            flash: Flash::new(),
            interfaces: Default::default(),
        }
    }

    /// Puts a network interface with an Ethernet address into one of the places for virtio devices.
    ///
    /// # Panics
    ///
    /// When there is no such place.
    pub fn plug(&mut self, place: usize, address: [u8; 6]) {
        self.interfaces[place] = Some(Interface::new(address));
        self.touched = true;
    }

    /// A frame comes to the interface at a place, where it waits until the driver has room for it.
    ///
    /// # Panics
    ///
    /// When there is no interface.
    pub fn deliver(&mut self, place: usize, frame: Vec<u8>) {
        let interface = self.interfaces[place].as_mut().expect("an interface");
        interface.deliver(frame, &mut self.ram);
        self.touched = true;
    }

    /// What the interface at a place sent since this was last asked: each frame, and the tick of it.
    ///
    /// # Panics
    ///
    /// When there is no interface.
    pub fn take_sent(&mut self, place: usize) -> Vec<(u64, Vec<u8>)> {
        self.interfaces[place].as_mut().expect("an interface").take_sent()
    }

    /// Frames that came and were lost, of all interfaces.
    #[must_use]
    pub fn frames_lost(&self) -> u64 {
        self.interfaces.iter().flatten().map(Interface::lost).sum()
    }

    /// Ticks since power came on.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The flash's cells, for looking at them and for faults.
    ///
    /// # Panics
    ///
    /// When there is no such bank.
    pub fn nor(&mut self, bank: usize) -> &mut nor_model::Nor {
        self.flash.nor(bank, self.ticks)
    }

    /// Takes what the console sent.
    pub fn take_console(&mut self) -> Vec<u8> {
        self.touched = true;
        self.uart.take_output()
    }

    /// Types at the console. Gives how many bytes it took: its FIFO has 16.
    pub fn type_at_console(&mut self, bytes: &[u8]) -> usize {
        self.touched = true;
        self.uart.input(bytes)
    }

    #[inline]
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
    }

    pub(super) fn pass_until(&mut self, ticks: u64) {
        self.ticks = self.ticks.max(ticks);
    }

    pub(super) fn due(&self) -> u64 {
        self.timer_due
    }

    #[inline]
    pub(super) fn needs_attention(&self) -> bool {
        self.touched || self.ticks >= self.timer_due
    }

    /// The lines to the core, as they are until the next time that attention is needed.
    pub(super) fn interrupts(&mut self) -> Interrupts {
        // What is accessed by a probe may be seen late by what waits, but not missed.
        self.touched = self.finished.is_some();
        self.plic.set_line(UART_SOURCE, self.uart.interrupt());
        for (source, interface) in (VIRTIO_SOURCE..).zip(&self.interfaces) {
            let asserted = interface.as_ref().is_some_and(Interface::interrupt);
            self.plic.set_line(source, asserted);
        }
        let due = self.clint.due();
        let timer = self.ticks >= due;
        self.timer_due = if timer { u64::MAX } else { due };
        Interrupts { software: self.clint.software(), timer, external: self.plic.external() }
    }

    pub(super) fn finished(&self) -> Option<Finish> {
        self.finished
    }

    pub(super) fn take_reset_request(&mut self) -> bool {
        std::mem::take(&mut self.reset_request)
    }

    fn finish(&mut self, value: u32) {
        match value & 0xffff {
            0x5555 => self.finished = Some(Finish::Pass),
            0x3333 => self.finished = Some(Finish::Fail((value >> 16) as u16)),
            0x7777 => self.reset_request = true,
            _ => {}
        }
    }

    fn read_device(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        self.touched = true;
        match at {
            FINISHER_BASE..=FINISHER_LAST => Ok(0),
            CLINT_BASE..=CLINT_LAST => {
                lanes(at, width, |at| self.clint.read(at - CLINT_BASE, self.ticks))
            }
            PLIC_BASE..=PLIC_LAST if width == Width::Word => Ok(self.plic.read(at - PLIC_BASE)),
            UART_BASE..=UART_LAST => Ok(self.uart.read(at - UART_BASE).into()),
            VIRTIO_BASE..=VIRTIO_LAST => {
                let (place, register) = virtio_place(at);
                match &self.interfaces[place] {
                    Some(interface) => interface.read(register, width),
                    None => lanes(register, width, |register| Ok(virtio::empty(register))),
                }
            }
            SPI_BASE..=SPI_LAST if width == Width::Word => self.spi.read(at - SPI_BASE),
            FLASH_BASE..=FLASH_LAST if self.spi.window_is_open() => {
                lanes(at, width, |at| Ok(self.flash.read(at - FLASH_BASE, self.ticks)))
            }
            _ => Err(AccessFault),
        }
    }

    fn write_device(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        self.touched = true;
        match at {
            FINISHER_BASE..=FINISHER_LAST => {
                self.finish(value);
                Ok(())
            }
            CLINT_BASE..=CLINT_LAST if width == Width::Word => {
                self.clint.write(at - CLINT_BASE, value, self.ticks)
            }
            PLIC_BASE..=PLIC_LAST if width == Width::Word => {
                self.plic.write(at - PLIC_BASE, value);
                Ok(())
            }
            UART_BASE..=UART_LAST => {
                self.uart.write(at - UART_BASE, value as u8);
                Ok(())
            }
            VIRTIO_BASE..=VIRTIO_LAST => {
                let (place, register) = virtio_place(at);
                if let Some(interface) = &mut self.interfaces[place] {
                    interface.write(register, value, &mut self.ram, self.ticks);
                }
                Ok(())
            }
            SPI_BASE..=SPI_LAST if width == Width::Word => {
                self.spi.write(at - SPI_BASE, value, &mut self.flash, self.ticks)
            }
            FLASH_BASE..=FLASH_LAST if self.spi.window_is_open() => {
                self.flash.write(at - FLASH_BASE, width, value, self.ticks);
                Ok(())
            }
            _ => Err(AccessFault),
        }
    }
}

/// The place for virtio devices that an address is of, and the register there.
fn virtio_place(at: u32) -> (usize, u32) {
    let offset = at - VIRTIO_BASE;
    ((offset / VIRTIO_PLACE) as usize, offset % VIRTIO_PLACE)
}

/// The SPI block after a reset.
fn block() -> Spi {
    Spi::new(FLASH_BASE, FLASH_BANK * BANKS as u32)
}

impl Bus for Virt {
    #[inline]
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        let start = at.wrapping_sub(RAM_BASE) as usize;
        let Some(bytes) = self.ram.get(start..) else { return self.read_device(at, width) };
        let word = match width {
            Width::Byte => bytes.first().map(|byte| u32::from(*byte)),
            Width::Half => bytes.first_chunk().map(|half| u16::from_le_bytes(*half).into()),
            Width::Word => bytes.first_chunk().map(|word| u32::from_le_bytes(*word)),
        };
        word.ok_or(AccessFault)
    }

    #[inline]
    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        let start = at.wrapping_sub(RAM_BASE) as usize;
        let Some(bytes) = self.ram.get_mut(start..) else {
            return self.write_device(at, width, value);
        };
        let length = width.bytes() as usize;
        let into = bytes.get_mut(..length).ok_or(AccessFault)?;
        into.copy_from_slice(&value.to_le_bytes()[..length]);
        Ok(())
    }

    /// Only from memory and flash: devices are not executed.
    #[inline]
    fn fetch(&mut self, at: u32) -> Result<u16, AccessFault> {
        let start = at.wrapping_sub(RAM_BASE) as usize;
        if let Some(half) = self.ram.get(start..).and_then(|bytes| bytes.first_chunk()) {
            return Ok(u16::from_le_bytes(*half));
        }
        match at {
            FLASH_BASE..=FLASH_LAST => self.read_device(at, Width::Half).map(|half| half as u16),
            _ => Err(AccessFault),
        }
    }

    fn time(&self) -> u64 {
        self.clint.time(self.ticks)
    }
}

impl System for Virt {
    fn reset(&mut self) {
        self.clint.reset();
        self.plic = Plic::default();
        self.uart.reset();
        self.spi = block();
        self.flash.reset(self.ticks);
        self.interfaces.iter_mut().flatten().for_each(Interface::reset);
        self.finished = None;
        self.touched = true;
    }

    fn reset_vector(&self) -> u32 {
        FLASH_BASE
    }
}
