//! The machine's UART, on which bytes go out.

use core::fmt;
use soc::board::Patience;

const DATA: *mut u8 = 0x1000_0000 as *mut u8;
const LINE_STATUS: *const u8 = 0x1000_0005 as *const u8;

/// Line status of a 16550: the transmitter's register is empty.
const EMPTY: u8 = 0x20;

/// Of all that write here.
static PATIENCE: Patience = Patience::new();

/// The UART.
pub(crate) struct Console;

impl Console {
    /// Sends bytes, and waits for room for each. Those for which none comes are lost.
    pub(crate) fn write_bytes(bytes: &[u8]) {
        for byte in bytes {
            // SAFETY: the machine's UART is there, and only this module uses it.
            if PATIENCE.has_room(|| unsafe { LINE_STATUS.read_volatile() } & EMPTY != 0) {
                // SAFETY: as above.
                unsafe { DATA.write_volatile(*byte) }
            }
        }
    }
}

/// The log's way out.
#[unsafe(no_mangle)]
fn dxpu_console(bytes: &[u8]) {
    Console::write_bytes(bytes);
}

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                Self::write_bytes(b"\r");
            }
            Self::write_bytes(&[byte]);
        }
        Ok(())
    }
}
