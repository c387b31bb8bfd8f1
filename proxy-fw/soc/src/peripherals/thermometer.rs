//! A thermometer on I2C of the LM75 kind, such as Texas Instruments' TMP1075 (data sheet SBOS854,
//! sections 8.5.5 and 8.6.1): register 0 has the temperature, in two's complement from its highest
//! bit on, 1 °C in bit 8.

use embedded_hal::i2c::I2c;

/// The temperature register.
const TEMPERATURE: u8 = 0;

/// Such a thermometer.
#[derive(Debug)]
pub struct Thermometer<I> {
    bus: I,
    address: u8,
}

impl<I: I2c> Thermometer<I> {
    /// The thermometer at a 7-bit address of a bus.
    pub fn new(bus: I, address: u8) -> Self {
        Self { bus, address }
    }

    /// The temperature in thousandths of a degree Celsius.
    ///
    /// # Errors
    ///
    /// What the bus says.
    pub fn read(&mut self) -> Result<i32, I::Error> {
        let mut value = [0; 2];
        self.bus.write_read(self.address, &[TEMPERATURE], &mut value)?;
        Ok(i32::from(i16::from_be_bytes(value)) * 1000 / 256)
    }

    /// Gives the bus back.
    pub fn release(self) -> I {
        self.bus
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_hal::i2c::{ErrorKind, NoAcknowledgeSource};
    use embedded_hal_mock::eh1::i2c::{Mock, Transaction};
    use std::vec;

    #[test]
    fn the_data_sheets_examples() {
        // SBOS854, table 8-3.
        for (bytes, expected) in [
            ([0x7f, 0xf0], 127_937),
            ([0x64, 0x00], 100_000),
            ([0x19, 0x00], 25_000),
            ([0x00, 0x40], 250),
            ([0x00, 0x00], 0),
            ([0xff, 0xc0], -250),
            ([0xe7, 0x00], -25_000),
            ([0x80, 0x00], -128_000),
        ] {
            let bus = Mock::new(&[Transaction::write_read(0x48, vec![0], bytes.to_vec())]);
            let mut thermometer = Thermometer::new(bus, 0x48);
            assert_eq!(thermometer.read(), Ok(expected));
            thermometer.release().done();
        }
    }

    #[test]
    fn no_thermometer_is_an_error() {
        let nobody = ErrorKind::NoAcknowledge(NoAcknowledgeSource::Address);
        let absent = Transaction::write_read(0x48, vec![0], vec![0, 0]).with_error(nobody);
        let mut thermometer = Thermometer::new(Mock::new(&[absent]), 0x48);
        assert_eq!(thermometer.read(), Err(nobody));
        thermometer.release().done();
    }
}
