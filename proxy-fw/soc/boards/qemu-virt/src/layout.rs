//! Where things are in the machine's flash and memory. The programs at a bench read it, too.

use card_image::{BoardName, Layout, Region};

/// What images for this board say.
pub const BOARD: BoardName = match BoardName::new("qemu-virt") {
    Ok(name) => name,
    Err(_) => panic!("the board's name is wrong"),
};

/// Where the flash is in the core's address space: the first of the machine's two banks. The
/// core's first instruction is its first word.
pub const FLASH_BASE: u32 = 0x2000_0000;

/// Bytes of the flash.
pub const FLASH: u32 = 32 << 20;

/// Bytes that are erased at once.
pub const ERASE_BLOCK: u32 = 256 << 10;

/// What is where in the flash.
pub const LAYOUT: Layout = match Layout::packed(FLASH, ERASE_BLOCK, 256 << 10, 1 << 20) {
    Ok(layout) => layout,
    Err(_) => panic!("the board's flash layout is wrong"),
};

/// Memory for an image and all that it needs while it runs.
pub const MEMORY: Region = Region { start: 0x8000_0000, len: 0x78_0000 };

/// Memory that the boot loader runs in, which an image does not touch.
pub const BOOT_MEMORY: Region = Region { start: 0x8078_0000, len: 0x7_f000 };

/// Memory that only records which outlast a reset are in.
pub const RETAINED: u32 = 0x807f_f000;
/// Bytes of it.
pub const RETAINED_ROOM: u32 = 4096;
