//! What runs on a card while a probe writes its flash.
//!
//! A probe loads this into the card's memory and calls its functions, which is what probe-rs and
//! CMSIS call a flash algorithm: JTAG alone would need many times as long. [`flash`] is the part
//! on SPI, [`port`] the card's SPI block, and [`algorithm!`] makes the functions for a board.
//!
//! Nothing is kept between two calls: each asks the part anew what it is, and leaves its window in
//! memory open, through which the probe reads.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod flash;
pub mod port;

mod fault;

pub use fault::Fault;

/// Makes the functions of a flash algorithm, as probe-rs and CMSIS-Pack name them, for a board:
/// the address of its SPI block, the address of the window in which the flash's first byte is,
/// and the bytes that are erased at once.
///
/// Each gives 0, or the number of a [`Fault`].
#[macro_export]
macro_rules! algorithm {
    (spi: $spi:expr, window: $window:expr, erase_block: $block:expr) => {
        fn flash() -> $crate::flash::Flash<$crate::port::SpiPort> {
            // SAFETY: the board has its SPI block there, and nothing else runs.
            $crate::flash::Flash::new(unsafe { $crate::port::SpiPort::new($spi) }, $block)
        }

        fn code(outcome: Result<(), $crate::Fault>) -> u32 {
            outcome.map_or_else(|fault| fault as u32, |()| 0)
        }

        /// Looks whether there is a part that can be used.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".entry")]
        extern "C" fn Init(_address: u32, _clock: u32, _operation: u32) -> u32 {
            code(flash().identify())
        }

        /// Nothing is left to do.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".entry")]
        extern "C" fn UnInit(_operation: u32) -> u32 {
            0
        }

        /// Erases the block that begins at an address.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".entry")]
        extern "C" fn EraseSector(address: u32) -> u32 {
            code(flash().erase(address.wrapping_sub($window)))
        }

        /// Writes bytes of one page.
        ///
        /// # Safety
        ///
        /// So many bytes are at `bytes`.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".entry")]
        unsafe extern "C" fn ProgramPage(address: u32, length: u32, bytes: *const u8) -> u32 {
            // SAFETY: as the caller says.
            let bytes = unsafe { core::slice::from_raw_parts(bytes, length as usize) };
            code(flash().program(address.wrapping_sub($window), bytes))
        }

        /// Whether a range of the window, whole words, is erased.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".entry")]
        extern "C" fn BlankCheck(address: u32, length: u32, _blank: u32) -> u32 {
            // SAFETY: the window is mapped there and nothing writes the flash.
            code(unsafe { $crate::port::check_blank(address, length) })
        }

        /// Stops where the probe sees it.
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {
                // SAFETY: a probe is there, or else nothing called this.
                unsafe { core::arch::asm!("ebreak") }
            }
        }
    };
}
