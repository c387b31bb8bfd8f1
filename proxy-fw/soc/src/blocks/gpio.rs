//! Pins (`hw/regs/card.md`, "gpio").

use card_regs::Bus;
use card_regs::gpio::{Gpio, OutputClear, OutputSet};
use core::convert::Infallible;
use embedded_hal::digital::{ErrorType, InputPin, OutputPin};

/// Pins of the block.
const PINS: u8 = 32;

/// A pin of the block.
#[derive(Debug)]
pub struct Pin<B> {
    block: Gpio<B>,
    mask: u32,
}

impl<B: Bus + Copy> Pin<B> {
    /// Pin `number` as an input.
    ///
    /// # Panics
    ///
    /// When the block has no such pin: the board's constants are wrong.
    pub fn input(block: Gpio<B>, number: u8) -> Self {
        let pin = Self::new(block, number);
        block.direction().modify(|value| value.with_pins(value.pins() & !pin.mask));
        pin
    }

    /// Pin `number` as an output that has this level from the first moment on.
    ///
    /// # Panics
    ///
    /// When the block has no such pin: the board's constants are wrong.
    pub fn output(block: Gpio<B>, number: u8, high: bool) -> Self {
        let pin = Self::new(block, number);
        pin.drive(high);
        block.direction().modify(|value| value.with_pins(value.pins() | pin.mask));
        pin
    }

    fn new(block: Gpio<B>, number: u8) -> Self {
        assert!(number < PINS, "the block has 32 pins");
        Self { block, mask: 1 << number }
    }

    fn drive(&self, high: bool) {
        if high {
            self.block.output_set().write(OutputSet::RESET.with_pins(self.mask));
        } else {
            self.block.output_clear().write(OutputClear::RESET.with_pins(self.mask));
        }
    }
}

impl<B> ErrorType for Pin<B> {
    type Error = Infallible;
}

impl<B: Bus + Copy> OutputPin for Pin<B> {
    fn set_low(&mut self) -> Result<(), Infallible> {
        self.drive(false);
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        self.drive(true);
        Ok(())
    }
}

impl<B: Bus + Copy> InputPin for Pin<B> {
    fn is_high(&mut self) -> Result<bool, Infallible> {
        Ok(self.block.input().read().pins() & self.mask != 0)
    }

    fn is_low(&mut self) -> Result<bool, Infallible> {
        self.is_high().map(|high| !high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::vec::Vec;

    /// The block: outputs, directions, and what is outside; each access in its order.
    #[derive(Default)]
    struct Model {
        output: Cell<u32>,
        direction: Cell<u32>,
        outside: Cell<u32>,
        levels: core::cell::RefCell<Vec<u32>>,
    }

    impl Bus for Model {
        fn read32(&self, offset: u32) -> u32 {
            match offset {
                0x00 => {
                    let driven = self.direction.get();
                    self.output.get() & driven | self.outside.get() & !driven
                }
                0x10 => self.direction.get(),
                _ => panic!("read of {offset:#x}"),
            }
        }

        fn write32(&self, offset: u32, value: u32) {
            match offset {
                0x08 => self.output.set(self.output.get() | value),
                0x0c => self.output.set(self.output.get() & !value),
                0x10 => self.direction.set(value),
                _ => panic!("write of {offset:#x}"),
            }
            self.levels.borrow_mut().push(self.read32(0));
        }
    }

    #[test]
    fn an_output_begins_with_its_level_and_leaves_the_others() {
        let model = Model::default();
        model.outside.set(0b100);
        let block = Gpio::at(&model, 0);
        let mut first = Pin::output(block, 1, true);
        let mut second = Pin::output(block, 31, false);
        assert_eq!(model.direction.get(), 1 << 31 | 0b10);
        assert_eq!(model.read32(0), 0b110);
        first.set_low().unwrap();
        second.set_high().unwrap();
        assert_eq!(model.read32(0), 1 << 31 | 0b100);
        let glitch = |level: &u32| level & 1 << 31 != 0;
        assert_eq!(model.levels.borrow().iter().filter(|level| glitch(level)).count(), 1);
    }

    #[test]
    fn an_input_is_what_is_outside() {
        let model = Model::default();
        let block = Gpio::at(&model, 0);
        let mut pin = Pin::input(block, 4);
        assert!(pin.is_low().unwrap());
        model.outside.set(1 << 4);
        assert!(pin.is_high().unwrap());
    }
}
