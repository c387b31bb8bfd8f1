//! Accessors over a model in memory: which words they read and write, and what fields make of them.

use std::cell::RefCell;

use card_regs::tlp_descriptor::{self, TlpDescriptor};
use card_regs::values::{Indicator, PayloadSize, ResetCause, SlotLink, SpiAddress, TlpClass};
use card_regs::{Access, Bits, Bus, Card, Mmio, REGISTERS, card, irq, queue, slot};

/// Words that keep what is written to them, and a list of all accesses.
struct Words {
    words: RefCell<Vec<u32>>,
    accesses: RefCell<Vec<(char, u32, u32)>>,
}

impl Words {
    /// As all registers are after a reset.
    fn new() -> Self {
        let mut words = vec![0; (card::SIZE / 4) as usize];
        for register in REGISTERS {
            words[(register.address / 4) as usize] = register.reset;
        }
        Self { words: RefCell::new(words), accesses: RefCell::default() }
    }

    /// The accesses since this was called last.
    fn accesses(&self) -> Vec<(char, u32, u32)> {
        self.accesses.take()
    }
}

impl Bus for Words {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.words.borrow()[(offset / 4) as usize];
        self.accesses.borrow_mut().push(('r', offset, value));
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        self.words.borrow_mut()[(offset / 4) as usize] = value;
        self.accesses.borrow_mut().push(('w', offset, value));
    }
}

#[test]
fn a_card_is_told_from_something_else() {
    let words = Words::new();
    let id = Card::at(&words, 0).id();
    assert_eq!(id.magic().read().magic().to_le_bytes(), *b"DxPU");
    assert_eq!((id.version().read().major(), id.version().read().minor()), (1, 0));
    assert_eq!(words.accesses().len(), 3);
}

#[test]
fn modify_reads_once_and_writes_once() {
    let words = Words::new();
    let slot = Card::at(&words, 0).tlp().slot(2).unwrap();
    assert_eq!(slot.control().read().bits(), 0b101, "PERST# asserted, link disabled");
    words.accesses();
    slot.control().modify(|control| {
        control
            .with_perst(false)
            .with_link_disable(false)
            .with_power(true)
            .with_power_indicator(Indicator::Blink)
            .with_max_payload(PayloadSize::Bytes512)
    });
    assert_eq!(words.accesses(), [('r', 0x1484, 0b101), ('w', 0x1484, 0x288)]);
    assert_eq!(slot.control().read().power_indicator(), Indicator::Blink);
    assert_eq!(slot.control().read().attention_indicator(), Indicator::Off);
}

#[test]
fn a_write_is_one_access() {
    let words = Words::new();
    let card = Card::at(&words, 0);
    card.irq().pending().write(irq::Pending::from_bits(0).with_tlp_receive(true));
    let tail = queue::Tail::RESET.with_position(0xfffe);
    card.mac(1).unwrap().transmit().tail().write(tail);
    assert_eq!(words.accesses(), [('w', 0x400, 4), ('w', 0xb70, 0xfffe)]);
}

#[test]
fn arrays_end() {
    let words = Words::new();
    let card = Card::at(&words, 0);
    assert!(card.tlp().slot(15).is_some() && card.tlp().slot(16).is_none());
    assert!(card.mac(1).is_some() && card.mac(2).is_none());
    assert!(card.id().board(3).is_some() && card.id().board(usize::MAX).is_none());
    assert_eq!(words.accesses(), []);
}

#[test]
fn setting_a_field_leaves_the_others() {
    let all = slot::Status::from_bits(u32::MAX);
    assert_eq!(all.with_width(Bits::new(5).unwrap()).bits(), !(0x3f << 12) | 5 << 12);
    let none = slot::Status::from_bits(0);
    assert_eq!(none.with_width(Bits::MAX).bits(), 0x3f << 12);
    assert_eq!(none.with_width(Bits::MAX).width().get(), 63);
    assert_eq!(none.with_link(SlotLink::Up).bits(), 2 << 4);
    assert!(none.with_perst(true).perst() && !all.with_perst(false).perst());
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    assert_eq!(Bits::<6>::new(63).map(Bits::get), Some(63));
    assert_eq!(Bits::<6>::new(64), None);
    assert_eq!(Bits::<6>::low_of(0x7f).get(), 63);
    assert_eq!(Bits::<31>::MAX.get(), u32::MAX >> 1);
}

#[test]
fn values_without_a_meaning_are_kept() {
    for bits in 0..8 {
        let cause = ResetCause::from_bits(bits);
        assert_eq!(cause.bits(), bits);
        assert_eq!(matches!(cause, ResetCause::Unknown(_)), bits > 5);
    }
    assert_eq!(SlotLink::from_bits(0xffff_fff2), SlotLink::Up, "higher bits are of other fields");
    assert_eq!(SpiAddress::from_bits(1), SpiAddress::Bytes4);
    assert_eq!(TlpClass::from_bits(3), TlpClass::Unknown(Bits::MAX));
}

#[test]
fn the_table_says_what_can_be_done() {
    let access = |path: &str| REGISTERS.iter().find(|r| r.path == path).unwrap().access;
    assert_eq!(access("timer.low"), Access::ReadOnly);
    assert_eq!(access("watchdog.feed"), Access::WriteOnly);
    assert_eq!(access("tlp.slot[3].receive_grant"), Access::ReadWrite);
    assert_eq!(access("irq.pending"), Access::ReadWriteEffect);
    assert_eq!(access("tlp.receive.tail"), Access::ReadWriteEffect);
    let clock = REGISTERS.iter().find(|r| r.path == "id.clock").unwrap();
    assert_eq!((clock.reset, clock.from_board), (0, u32::MAX));
}

#[test]
fn memory_is_a_bus_too() {
    let mut ring = [0_u32; 2 * (tlp_descriptor::SIZE / 4) as usize];
    let base = ring.as_mut_ptr().expose_provenance();
    // SAFETY: the ring is aligned, has 32 bytes, outlives `bus`, and no reference to it is used
    // until that is used no more. No hardware knows of it.
    let bus = unsafe { Mmio::<32>::new(base) };
    let second = TlpDescriptor::at(bus, tlp_descriptor::SIZE);
    second.length().write(tlp_descriptor::Length::RESET.with_room(556).with_bytes(12));
    let status = tlp_descriptor::Status::RESET.with_slot(Bits::new(7).unwrap()).with_own(true);
    second.status().write(status.with_class(TlpClass::Completion));
    assert!(second.status().read().own());
    assert_eq!(ring, [0, 0, 0, 0, 0, 556 << 16 | 12, 0x8002_0007, 0]);
}

#[test]
#[should_panic(expected = "no register is there")]
fn memory_that_is_not_the_bus_is_not_touched() {
    let word = [0_u32];
    // SAFETY: nothing is accessed.
    let bus = unsafe { Mmio::<4>::new(word.as_ptr().expose_provenance()) };
    bus.read32(4);
}
