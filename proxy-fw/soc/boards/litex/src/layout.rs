//! Where things are in the SoC's address space and in its flash. The gateware is built for these
//! numbers; what it says of itself (`hw/regs/card.md`, "id") is compared at the start. The programs at a
//! bench have them in the board file (`proxy-fw/flash/boards/litex.yaml`).

use card_image::{BoardName, Layout, Region};

/// What the gateware calls itself, and what images for this board say.
pub const NAME: &str = "litex";

/// The same, as an image has it.
pub const BOARD: BoardName = match BoardName::new(NAME) {
    Ok(name) => name,
    Err(_) => panic!("the board's name is wrong"),
};

/// Where the card's registers are. LiteX caches nothing from 0x80000000 on.
pub const REGISTERS: usize = 0xf001_0000;

/// The line of the core's external interrupts that the card's `irq` block drives.
pub const INTERRUPT: u32 = 0;

/// Bytes of the flash.
pub const FLASH: u32 = 16 << 20;

/// Where the flash is in the core's address space, as the SPI block shows it: where LiteX caches nothing,
/// since a probe reads there what it has just written.
pub const WINDOW: u32 = 0xa000_0000;

/// Bytes that are erased at once: a sector, which every SPI NOR flash has.
pub const ERASE_BLOCK: u32 = 4 << 10;

/// What is where in the flash. The gateware's bitstream has a flash, or a part of one, of its own;
/// LiteX's BIOS is built with the address of this one's first byte as `FLASH_BOOT_ADDRESS`.
pub const LAYOUT: Layout = match Layout::packed(FLASH, ERASE_BLOCK, 256 << 10, 1 << 20) {
    Ok(layout) => layout,
    Err(_) => panic!("the board's flash layout is wrong"),
};

/// Memory for an image and all that it needs while it runs.
pub const MEMORY: Region = Region { start: 0x4000_0000, len: 0x78_0000 };

/// Memory that the boot loader runs in, which an image does not touch. LiteX's BIOS puts it where
/// images are, from where it moves itself.
pub const BOOT_MEMORY: Region = Region { start: 0x4078_0000, len: 0x8_0000 };

/// Block RAM that the card's blocks reach, too, which the core does not cache: rings of descriptors
/// first, then buffers, and the records that outlast a reset in its last 4 KB.
pub const SHARED: Region = Region { start: 0x9000_0000, len: 256 << 10 };

/// Memory that only records which outlast a reset are in.
pub const RETAINED: u32 = SHARED.start + SHARED.len - RETAINED_ROOM;
/// Bytes of it.
pub const RETAINED_ROOM: u32 = 4096;

/// The peripherals' clock divided by the flash's bit rate.
pub const SPI_RATIO: u16 = 4;

/// Bits a second of the I2C bus.
pub const I2C_RATE: u32 = 100_000;

/// The identity EEPROM (Microchip 24AA02E48) on I2C bus 0, and where its EUI-48 is (data sheet
/// DS20002124, "Preprogrammed EUI-48").
pub const IDENTITY: u8 = 0x50;
/// See [`IDENTITY`].
pub const EUI_48: u16 = 0xfa;

/// Where that memory has the card's vital product data: in its half that can be written, which is
/// so many bytes.
pub const VPD: u16 = 0;
/// See [`VPD`].
pub const VPD_LENGTH: usize = 128;

/// The thermometer (LM75) on the same bus.
pub const THERMOMETER: u8 = 0x48;

/// The I2C bus of the network module's cage.
pub const MODULES: usize = 1;

/// Pins: of the first place's light, behind which those of the others are, lit when high; and of the
/// cage's Mod_ABS, low while a module is plugged.
pub const LIGHTS: u8 = 0;
/// See [`LIGHTS`].
pub const MODULE_ABSENT: u8 = 16;

/// Frames without the frame check sequence, in bytes.
pub const MAX_FRAME: u16 = 1514;

/// Binary logarithms of the queues' numbers of descriptors.
pub const TLP_RECEIVE: u32 = 8;
/// See [`TLP_RECEIVE`].
pub const TLP_TRANSMIT: u32 = 5;
/// See [`TLP_RECEIVE`].
pub const MAC_FABRIC: u32 = 5;
/// See [`TLP_RECEIVE`].
pub const MAC_OTHER: u32 = 3;
/// See [`TLP_RECEIVE`].
pub const MAC_TRANSMIT: u32 = 4;
