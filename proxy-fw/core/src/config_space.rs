//! Configuration space, register by register.
//!
//! A function's 4 KB are described by a [`Layout`]: a table with one row for each doubleword that
//! is implemented, saying what it holds after reset and which of its bits software may write,
//! clears by writing 1, and keeps over a hot reset. [`ConfigSpace`] holds the values. Everything
//! that a table can say is said there; what a write *does* (a reset, a link that goes down, an
//! indicator) is the owner's business, which is told the old and the new value.
//!
//! Bits are named by their place in the doubleword, so that a 16-bit register in its upper half
//! has its bits shifted up. Names and places are those of Linux's `pci_regs.h` and of PCIe 5.0
//! chapter 7, section by section where each capability is defined.

/// Doublewords of a function's configuration space that a layout may implement, of the 1024 that
/// there are (PCIe 5.0 section 7.2).
const DOUBLEWORDS: usize = 128;

/// Registers that one layout may have.
pub const MAX_REGISTERS: usize = 60;

/// One doubleword of configuration space.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// Byte offset, a multiple of 4.
    pub offset: u16,
    /// Value after reset.
    pub reset: u32,
    /// Bits that software writes.
    pub writable: u32,
    /// Bits that software clears by writing 1.
    pub clearable: u32,
    /// Bits that a hot reset leaves alone (PCIe 5.0 section 7.4: RWS, ROS, RW1CS).
    pub sticky: u32,
}

impl Register {
    /// A register that only hardware changes.
    pub const fn read_only(offset: u16, reset: u32) -> Self {
        Self { offset, reset, writable: 0, clearable: 0, sticky: 0 }
    }

    /// With bits that software writes.
    pub const fn writable(self, bits: u32) -> Self {
        Self { writable: bits, ..self }
    }

    /// With bits that software clears by writing 1.
    pub const fn clearable(self, bits: u32) -> Self {
        Self { clearable: bits, ..self }
    }

    /// With bits that a hot reset leaves alone.
    pub const fn sticky(self, bits: u32) -> Self {
        Self { sticky: bits, ..self }
    }
}

/// What is kept of a [`Register`]: where it is, its layout knows once.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    reset: u32,
    writable: u32,
    clearable: u32,
    sticky: u32,
}

/// The registers of one kind of function. [`layout!`](crate::layout) makes one.
pub struct Layout {
    rows: &'static [Row],
    /// For each doubleword, 1 + its place in `rows`; 0 where none is implemented.
    places: [u8; DOUBLEWORDS],
}

impl Layout {
    /// The layout of these registers, with what is kept of them ([`rows`]). A mistake in a table (two
    /// rows for one register, a bit both writable and clearable) does not compile.
    pub const fn new(rows: &'static [Row], registers: &[Register]) -> Self {
        assert!(registers.len() <= MAX_REGISTERS, "that many registers have room");
        assert!(registers.len() == rows.len(), "the rows are theirs");
        let mut places = [0; DOUBLEWORDS];
        let mut row = 0;
        while row < registers.len() {
            let register = registers[row];
            assert!(register.offset & 3 == 0, "registers are doublewords");
            assert!(register.writable & register.clearable == 0, "a bit is one or the other");
            let place: &mut u8 = &mut places[register.offset as usize / 4];
            assert!(*place == 0, "two rows for one register");
            row += 1;
            *place = row as u8;
        }
        Self { rows, places }
    }

    const fn place(&self, offset: u16) -> Option<usize> {
        let doubleword = offset as usize / 4;
        if doubleword >= DOUBLEWORDS {
            return None;
        }
        (self.places[doubleword] as usize).checked_sub(1)
    }

    /// The register there, if one is.
    pub fn register(&self, offset: u16) -> Option<Register> {
        let Row { reset, writable, clearable, sticky } = self.rows[self.place(offset)?];
        Some(Register { offset: offset & !3, reset, writable, clearable, sticky })
    }
}

/// How many registers these tables have together.
pub const fn count(parts: &[&[Register]]) -> usize {
    let (mut part, mut count) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

/// The registers of these tables, one behind the other: `N` is how many they are ([`count`]).
pub const fn join<const N: usize>(parts: &[&[Register]]) -> [Register; N] {
    let mut registers = [Register::read_only(0, 0); N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            registers[at] = parts[part][row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    assert!(at == N, "all of them");
    registers
}

/// What is kept of registers.
pub const fn rows<const N: usize>(registers: &[Register; N]) -> [Row; N] {
    let mut rows = [Row { reset: 0, writable: 0, clearable: 0, sticky: 0 }; N];
    let mut at = 0;
    while at < N {
        let Register { reset, writable, clearable, sticky, .. } = registers[at];
        rows[at] = Row { reset, writable, clearable, sticky };
        at += 1;
    }
    rows
}

/// A [`Layout`](crate::config_space::Layout) of the tables of a header and its capabilities, with no
/// more bytes than they have rows.
#[macro_export]
macro_rules! layout {
    ($parts:expr) => {{
        const PARTS: &[&[$crate::config_space::Register]] = $parts;
        const COUNT: usize = $crate::config_space::count(PARTS);
        const REGISTERS: [$crate::config_space::Register; COUNT] =
            $crate::config_space::join(PARTS);
        static ROWS: [$crate::config_space::Row; COUNT] = $crate::config_space::rows(&REGISTERS);
        $crate::config_space::Layout::new(&ROWS, &REGISTERS)
    }};
}

/// The head of a capability in the first 256 bytes: its ID, where the next one is (0: none), and
/// the 16 bits behind them.
pub const fn capability(id: u8, next: u16, upper: u16) -> u32 {
    (upper as u32) << 16 | (next as u32 & 0xfc) << 8 | id as u32
}

/// The head of an extended capability: its ID, version, and where the next one is (0: none).
pub const fn extended_capability(id: u16, version: u8, next: u16) -> u32 {
    (next as u32) << 20 | (version as u32 & 0xf) << 16 | id as u32
}

/// What a write changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Byte offset of the doubleword.
    pub offset: u16,
    /// Its value before.
    pub old: u32,
    /// Its value now.
    pub new: u32,
    /// What software put there, where its byte enables are set; 0 elsewhere.
    pub given: u32,
}

impl Written {
    /// Bits that went from 0 to 1.
    pub const fn set(&self) -> u32 {
        self.new & !self.old
    }

    /// Bits that went from 1 to 0.
    pub const fn cleared(&self) -> u32 {
        self.old & !self.new
    }

    /// Bits that are not what they were.
    pub const fn changed(&self) -> u32 {
        self.old ^ self.new
    }
}

/// Which reset a function goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetKind {
    /// PERST# or power: everything goes to its default.
    Fundamental,
    /// In-band reset of the link: sticky bits stay.
    Hot,
}

/// One function's configuration space.
pub struct ConfigSpace {
    layout: &'static Layout,
    reset: [u32; MAX_REGISTERS],
    values: [u32; MAX_REGISTERS],
}

impl ConfigSpace {
    /// The values after reset, as the layout has them.
    pub fn new(layout: &'static Layout) -> Self {
        let mut reset = [0; MAX_REGISTERS];
        for (value, register) in reset.iter_mut().zip(layout.rows) {
            *value = register.reset;
        }
        Self { layout, reset, values: reset }
    }

    /// Sets what these bits are now and after every reset: identity and configuration.
    ///
    /// # Panics
    ///
    /// When the layout has no such register.
    pub fn define(&mut self, offset: u16, bits: u32, value: u32) {
        let place = self.place(offset);
        for held in [&mut self.reset[place], &mut self.values[place]] {
            *held = *held & !bits | value & bits;
        }
    }

    fn place(&self, offset: u16) -> usize {
        let place = self.layout.place(offset);
        assert!(place.is_some(), "register {offset:#x} is not in the layout");
        place.unwrap_or_default()
    }

    /// What software reads: a register that is not implemented reads 0 (PCIe 5.0 section 7.3.3).
    pub fn read(&self, offset: u16) -> u32 {
        self.layout.place(offset).map_or(0, |place| self.values[place])
    }

    /// Software writes the bytes that `enables` (bit n: byte n) names. `None`: not implemented.
    pub fn write(&mut self, offset: u16, value: u32, enables: u8) -> Option<Written> {
        let place = self.layout.place(offset)?;
        let register = &self.layout.rows[place];
        let lanes = lanes(enables);
        let old = self.values[place];
        let written = register.writable & lanes;
        let new = (old & !written | value & written) & !(value & register.clearable & lanes);
        self.values[place] = new;
        Some(Written { offset: offset & !3, old, new, given: value & lanes })
    }

    /// A register as hardware sees it.
    ///
    /// # Panics
    ///
    /// When the layout has no such register.
    pub fn get(&self, offset: u16) -> u32 {
        self.values[self.place(offset)]
    }

    /// Hardware sets or clears bits, whoever may write them.
    ///
    /// # Panics
    ///
    /// When the layout has no such register.
    pub fn put(&mut self, offset: u16, bits: u32, value: u32) {
        let place = self.place(offset);
        let held = &mut self.values[place];
        *held = *held & !bits | value & bits;
    }

    /// Hardware sets bits; whether all of them were clear before.
    pub fn set(&mut self, offset: u16, bits: u32) -> bool {
        let were_clear = self.get(offset) & bits == 0;
        self.put(offset, bits, bits);
        were_clear
    }

    /// Whether any of the bits is set.
    pub fn any(&self, offset: u16, bits: u32) -> bool {
        self.get(offset) & bits != 0
    }

    /// The function is reset.
    pub fn reset(&mut self, kind: ResetKind) {
        for (place, register) in self.layout.rows.iter().enumerate() {
            let kept = match kind {
                ResetKind::Fundamental => 0,
                ResetKind::Hot => register.sticky,
            };
            self.values[place] = self.values[place] & kept | self.reset[place] & !kept;
        }
    }
}

/// Four byte enables as a mask over the doubleword.
pub const fn lanes(enables: u8) -> u32 {
    let mut mask = 0;
    let mut byte = 0;
    while byte < 4 {
        if enables >> byte & 1 != 0 {
            mask |= 0xff << (8 * byte);
        }
        byte += 1;
    }
    mask
}
