//! An I2C bus (`hw/regs/card.md`, "i2c").

use card_regs::Bus;
use card_regs::i2c::{Command, Control, I2c as Block, Status, Timing};
use embedded_hal::delay::DelayNs;
use embedded_hal::i2c::{
    ErrorKind, ErrorType, I2c, NoAcknowledgeSource, Operation, SevenBitAddress,
};

/// How often the block is asked whether a byte is over. The slowest is bounded by the block itself,
/// which lets a target stretch the clock for some milliseconds.
const POLLS: u32 = 10_000_000;

/// Smallest ratio of the clocks (`i2c.timing`).
const LEAST_RATIO: u32 = 16;

/// Half a period of the clocks with which a bus is freed, as the slowest of buses has it.
const HALF_CLOCK_US: u32 = 5;

/// So many halves it takes, a bit each: nine clocks, and a stop, which is the data line that rises
/// while the clock is high.
const FREEING: u32 = 22;
const SCL_LOW: u32 = 0b00_11_01_01_01_01_01_01_01_01_01;
const SDA_LOW: u32 = 0b01_10_00_00_00_00_00_00_00_00_00;

/// Why a transaction ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum I2cError {
    /// Nobody has this address, or the target did not take a byte.
    NotAcknowledged(NoAcknowledgeSource),
    /// Something else drives the bus.
    ArbitrationLost,
    /// A target held the clock for too long.
    Timeout,
    /// The block does not come to an end.
    Stuck,
}

impl embedded_hal::i2c::Error for I2cError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAcknowledged(source) => ErrorKind::NoAcknowledge(*source),
            Self::ArbitrationLost => ErrorKind::ArbitrationLoss,
            Self::Timeout => ErrorKind::Bus,
            Self::Stuck => ErrorKind::Other,
        }
    }
}

/// How long a target may hold SCL low. The card stands still meanwhile, and links give up after 10 ms; modules
/// take 0.5 ms at most (SFF-8636, clock holdoff time).
const STRETCH_MS: u8 = 4;

/// The bus.
#[derive(Debug)]
pub struct I2cBus<B>(Block<B>);

impl<B: Bus + Copy> I2cBus<B> {
    /// Starts the block, whose clock has `clock` hertz, with about `rate` bits a second. A bus that a
    /// target holds is freed first.
    ///
    /// # Panics
    ///
    /// When the rate is 0.
    pub fn new(block: Block<B>, clock: u32, rate: u32, delay: &mut impl DelayNs) -> Self {
        let ratio = clock.div_ceil(rate).clamp(LEAST_RATIO, u16::MAX.into());
        block.timing().write(Timing::RESET.with_ratio(ratio as u16).with_stretch(STRETCH_MS));
        free(block, delay);
        block.control().write(Control::RESET.with_enable(true));
        Self(block)
    }

    /// Has the block do something: the byte that came.
    fn carry_out(&mut self, command: Command, of: NoAcknowledgeSource) -> Result<u8, I2cError> {
        self.0.command().write(command);
        let status = self.wait()?;
        if status.timeout() {
            Err(I2cError::Timeout)
        } else if status.arbitration_lost() {
            Err(I2cError::ArbitrationLost)
        } else if status.nack() && command.write() {
            if !command.stop() {
                self.0.command().write(Command::RESET.with_stop(true));
                self.wait()?;
            }
            Err(I2cError::NotAcknowledged(of))
        } else {
            Ok(status.data())
        }
    }

    fn wait(&mut self) -> Result<Status, I2cError> {
        let mut statuses = (0..POLLS).map(|_| self.0.status().read());
        statuses.find(|status| !status.busy()).ok_or(I2cError::Stuck)
    }
}

/// Has a target let go of the bus that was in the middle of a byte when the core was reset: it gets as
/// many clocks as a byte and its acknowledgement have, and a stop (NXP UM10204, 3.1.16).
#[inline(never)] // once, for all buses
fn free<B: Bus + Copy>(block: Block<B>, delay: &mut impl DelayNs) {
    if block.status().read().sda() {
        return;
    }
    for half in 0..FREEING {
        let low = |halves: u32| halves >> half & 1 != 0;
        block.control().write(Control::RESET.with_scl_low(low(SCL_LOW)).with_sda_low(low(SDA_LOW)));
        delay.delay_us(HALF_CLOCK_US);
    }
}

impl<B> ErrorType for I2cBus<B> {
    type Error = I2cError;
}

fn is_read(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Read(_))
}

fn is_empty(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Read(bytes) => bytes.is_empty(),
        Operation::Write(bytes) => bytes.is_empty(),
    }
}

impl<B: Bus + Copy> I2c<SevenBitAddress> for I2cBus<B> {
    fn transaction(
        &mut self,
        address: u8,
        operations: &mut [Operation<'_>],
    ) -> Result<(), I2cError> {
        let begin = |read: bool| {
            let byte = address << 1 | u8::from(read);
            Command::RESET.with_start(true).with_write(true).with_data(byte)
        };
        let Some(first) = operations.first() else { return Ok(()) };
        if operations.iter().all(is_empty) {
            // Whether anybody has the address.
            let command = begin(is_read(first)).with_stop(true);
            return self.carry_out(command, NoAcknowledgeSource::Address).map(|_| ());
        }
        let mut direction = None;
        for at in 0..operations.len() {
            if is_empty(&operations[at]) {
                continue;
            }
            let read = is_read(&operations[at]);
            let next = operations[at + 1..].iter().find(|next| !is_empty(next)).map(is_read);
            if direction != Some(read) {
                self.carry_out(begin(read), NoAcknowledgeSource::Address)?;
                direction = Some(read);
            }
            match &mut operations[at] {
                Operation::Write(bytes) => {
                    let last = bytes.len() - 1;
                    for (index, byte) in bytes.iter().enumerate() {
                        let stop = index == last && next.is_none();
                        let command = Command::RESET.with_write(true).with_data(*byte);
                        self.carry_out(command.with_stop(stop), NoAcknowledgeSource::Data)?;
                    }
                }
                Operation::Read(bytes) => {
                    let last = bytes.len() - 1;
                    for (index, byte) in bytes.iter_mut().enumerate() {
                        let (end, stop) = (index == last, next.is_none());
                        let command = Command::RESET.with_read(true);
                        // The target lets go of the bus behind the last byte of a direction.
                        let command = command.with_nack(end && next != Some(true));
                        let command = command.with_stop(end && stop);
                        *byte = self.carry_out(command, NoAcknowledgeSource::Data)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use embedded_hal::i2c::Error;
    use embedded_hal_mock::eh1::delay::NoopDelay;
    use std::string::String;

    /// The block, and a target that answers 0x10, 0x11 and so on.
    struct Model {
        /// What was on the wire: S start, bytes written and read with + or -, P stop.
        wire: RefCell<String>,
        next: Cell<u8>,
        status: Cell<Status>,
        /// Times that it says that it is busy.
        busy: Cell<u32>,
        /// The byte that nobody acknowledges.
        refuses: Option<u8>,
        /// How every command ends, if not well.
        fails: Status,
        /// A target holds the data line for so many clocks more.
        holds: Cell<u32>,
        /// How the lines are pulled by hand.
        pulled: Cell<Control>,
    }

    impl Model {
        fn new() -> Self {
            Self {
                wire: RefCell::default(),
                next: Cell::new(0x10),
                status: Cell::new(Status::RESET),
                busy: Cell::new(0),
                refuses: None,
                fails: Status::RESET,
                holds: Cell::new(0),
                pulled: Cell::new(Control::RESET),
            }
        }

        /// The lines are pulled by hand: C is a clock, S and P are as above.
        fn pull(&self, now: Control) {
            let before = self.pulled.replace(now);
            let mut wire = self.wire.borrow_mut();
            if before.scl_low() && !now.scl_low() {
                wire.push('C');
                self.holds.set(self.holds.get().saturating_sub(1));
            }
            let held = self.holds.get() > 0;
            if !held && !now.scl_low() && before.sda_low() != now.sda_low() {
                wire.push(if now.sda_low() { 'S' } else { 'P' });
            }
        }
    }

    impl Bus for Model {
        fn read32(&self, offset: u32) -> u32 {
            assert_eq!(offset, 0x0c);
            let busy = self.busy.get();
            self.busy.set(busy.saturating_sub(1));
            let pulled = self.pulled.get();
            let sda = self.holds.get() == 0 && !pulled.sda_low();
            let status = self.status.get().with_busy(busy > 0);
            status.with_scl(!pulled.scl_low()).with_sda(sda).bits()
        }

        fn write32(&self, offset: u32, value: u32) {
            use core::fmt::Write;
            if offset == 0x00 {
                return self.pull(Control::from_bits(value));
            }
            if offset != 0x08 {
                return;
            }
            assert_eq!(self.busy.get(), 0, "only while it is not busy");
            let command = Command::from_bits(value);
            let (mut wire, mut status) = (self.wire.borrow_mut(), self.fails);
            if command.start() {
                wire.push('S');
            }
            if command.write() {
                let refused = self.refuses == Some(command.data());
                status = status.with_nack(refused);
                let mark = if refused { '-' } else { '+' };
                write!(wire, "{:02x}{mark}", command.data()).unwrap();
            }
            if command.read() {
                let byte = self.next.replace(self.next.get() + 1);
                status = status.with_data(byte);
                let mark = if command.nack() { '-' } else { '+' };
                write!(wire, "{byte:02x}{mark}").unwrap();
            }
            if command.stop() {
                wire.push('P');
            }
            self.status.set(status);
            self.busy.set(3);
        }
    }

    fn bus(model: &Model) -> I2cBus<&Model> {
        I2cBus::new(Block::at(model, 0), 100_000_000, 100_000, &mut NoopDelay)
    }

    #[test]
    fn a_target_that_holds_the_bus_is_clocked_until_it_lets_go() {
        for holds in [0, 1, 4, 9] {
            let model = Model { holds: Cell::new(holds), ..Model::new() };
            let _ = bus(&model);
            let wire = if holds > 0 { "CCCCCCCCCCP" } else { "" };
            assert_eq!(*model.wire.borrow(), wire, "{holds} clocks");
            assert_eq!(model.pulled.get(), Control::RESET.with_enable(true));
        }
        // One that never does is not clocked for ever.
        let model = Model { holds: Cell::new(1000), ..Model::new() };
        let _ = bus(&model);
        assert_eq!(*model.wire.borrow(), "C".repeat(10));
    }

    #[test]
    fn transactions_are_on_the_wire_as_the_traits_say() {
        type Does = fn(&mut I2cBus<&Model>);
        let cases: [(Does, &str); 6] = [
            (|bus| bus.write(0x48, &[1, 2]).unwrap(), "S90+01+02+P"),
            (|bus| bus.read(0x48, &mut [0; 2]).unwrap(), "S91+10+11-P"),
            (|bus| bus.write_read(0x48, &[0], &mut [0; 2]).unwrap(), "S90+00+S91+10+11-P"),
            (|bus| bus.write(0x48, &[]).unwrap(), "S90+P"),
            (
                |bus| {
                    let (mut a, mut b) = ([0; 1], [0; 1]);
                    let mut both = [
                        Operation::Write(&[1]),
                        Operation::Write(&[2]),
                        Operation::Read(&mut a),
                        Operation::Read(&mut []),
                        Operation::Read(&mut b),
                    ];
                    bus.transaction(0x48, &mut both).unwrap();
                    assert_eq!((a, b), ([0x10], [0x11]));
                },
                "S90+01+02+S91+10+11-P",
            ),
            (|bus| bus.transaction(0x48, &mut []).unwrap(), ""),
        ];
        for (does, wire) in cases {
            let model = Model::new();
            does(&mut bus(&model));
            assert_eq!(*model.wire.borrow(), wire);
        }
    }

    #[test]
    fn who_does_not_acknowledge_ends_it() {
        use NoAcknowledgeSource::{Address, Data};
        for (refuses, source, wire) in
            [(0x90, Address, "S90-P"), (2, Data, "S90+01+02-P"), (3, Data, "S90+01+02+03-P")]
        {
            let model = Model { refuses: Some(refuses), ..Model::new() };
            let error = bus(&model).write(0x48, &[1, 2, 3]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoAcknowledge(source));
            assert_eq!(*model.wire.borrow(), wire, "the bus is free behind it, with one stop");
        }
    }

    #[test]
    fn a_bus_that_fails_is_said() {
        let fails = |status: Status| {
            let model = Model { fails: status, ..Model::new() };
            bus(&model).read(0x48, &mut [0]).unwrap_err()
        };
        assert_eq!(fails(Status::RESET.with_timeout(true)), I2cError::Timeout);
        assert_eq!(fails(Status::RESET.with_arbitration_lost(true)), I2cError::ArbitrationLost);
    }

    #[test]
    fn a_block_that_hangs_is_given_up() {
        let model = Model::new();
        let mut bus = bus(&model);
        model.busy.set(u32::MAX);
        // Nothing is asked of it before.
        assert_eq!(bus.wait(), Err(I2cError::Stuck));
    }
}
