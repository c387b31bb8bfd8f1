//! What a part is: its size, granularities, times and names.

use std::time::Duration;

/// One of the sizes that a part can erase at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraseKind {
    /// Bytes, a power of two; blocks of this size begin at multiples of it.
    pub size: u32,
    /// The SPI command that erases so much.
    pub opcode: u8,
    /// How long it takes.
    pub time: Duration,
}

/// How long a part is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Programming of one page, whatever the number of bytes.
    pub program: Duration,
    /// Erasing of everything.
    pub chip_erase: Duration,
    /// Writing of the status registers.
    pub write_status: Duration,
}

/// A part's data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes, a power of two.
    pub size: u32,
    /// Bytes of a program page, a power of two. Programming does not leave its page.
    pub page: u32,
    /// Erase sizes, ascending. Wear is counted in blocks of the first.
    pub erases: &'static [EraseKind],
    /// Manufacturer, memory type and capacity, as JEDEC assigns them.
    pub jedec: [u8; 3],
    /// Times.
    pub timing: Timing,
    /// Erase cycles of a block that leave it whole. Each further one leaves a bit that stays 0.
    pub endurance: u32,
}

impl Part {
    /// A 16 MB SPI part with 4 KB sectors and 32 and 64 KB blocks (times and names as in the data
    /// sheet of Winbond's W25Q128JV, revision F, sections 8.1.1 and 9.6).
    pub const W25Q128: Self = Self {
        size: 16 << 20,
        page: 256,
        erases: &[
            EraseKind { size: 4 << 10, opcode: 0x20, time: Duration::from_millis(45) },
            EraseKind { size: 32 << 10, opcode: 0x52, time: Duration::from_millis(120) },
            EraseKind { size: 64 << 10, opcode: 0xd8, time: Duration::from_millis(150) },
        ],
        jedec: [0xef, 0x40, 0x18],
        timing: Timing {
            program: Duration::from_micros(400),
            chip_erase: Duration::from_secs(40),
            write_status: Duration::from_millis(10),
        },
        endurance: 100_000,
    };

    /// The same with 32 MB, where three address bytes do not reach everything.
    pub const W25Q256: Self = Self { size: 32 << 20, jedec: [0xef, 0x40, 0x19], ..Self::W25Q128 };

    /// One bank of the flash of QEMU's RISC-V `virt` machine: 32 MB, two 16-bit devices side by
    /// side on a 32-bit bus, erased 256 KB at once, never busy (`hw/riscv/virt.c` and
    /// `hw/block/pflash_cfi01.c`, QEMU 7.2).
    pub const QEMU_VIRT: Self = Self {
        size: 32 << 20,
        page: 4096,
        erases: &[EraseKind { size: 256 << 10, opcode: 0xd8, time: Duration::ZERO }],
        jedec: [0x89, 0x00, 0x18],
        timing: Timing {
            program: Duration::ZERO,
            chip_erase: Duration::ZERO,
            write_status: Duration::ZERO,
        },
        endurance: 100_000,
    };

    /// A part without busy times that is small enough to try every step of what is done with it.
    ///
    /// # Panics
    ///
    /// When the size is not a power of two of at least one erase block of 1 KB.
    #[must_use]
    pub const fn small(size: u32) -> Self {
        const BLOCK: EraseKind = EraseKind { size: 1 << 10, opcode: 0x20, time: Duration::ZERO };
        assert!(size.is_power_of_two() && size >= BLOCK.size);
        Self { size, page: 256, erases: &[BLOCK], ..Self::QEMU_VIRT }
    }

    /// The smallest size that can be erased.
    #[must_use]
    pub const fn block(&self) -> u32 {
        self.erases[0].size
    }

    /// Checks what the fields' documentation demands.
    pub(crate) fn check(&self) {
        assert!(self.size.is_power_of_two() && self.page.is_power_of_two());
        assert!(!self.erases.is_empty(), "a part that cannot be erased");
        let mut sizes = self.erases.iter().map(|kind| kind.size);
        assert!(sizes.clone().all(|size| size.is_power_of_two() && size <= self.size));
        assert!(sizes.clone().is_sorted() && sizes.all(|size| size >= self.page));
    }
}
