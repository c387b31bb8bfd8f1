//! What a panic says.

use core::fmt;
use core::panic::PanicInfo;

/// A panic's place, and then what it says: where there is little room, a long text loses its end.
pub struct Brief<'a>(pub &'a PanicInfo<'a>);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.0.location() {
            write!(f, "{}:{}: ", at.file(), at.line())?;
        }
        self.0.message().fmt(f)
    }
}
