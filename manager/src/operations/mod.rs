//! Operations: what a request changes in the records, and how an operation gets on.
//!
//! An operation is only records. Its request writes in one durable change what is wanted
//! ([`request`]); [`crate::reconcile`] makes the proxies agree, binding by binding, and tells what
//! came of each step ([`progress`]), in the same change as the step itself. So there is nothing
//! to resume after a crash: whoever looks at the records goes on. [`watchdog`] ends what takes too
//! long ([`overdue`]), [`mod@cancel`] calls one back, [`grace`] begins the operations that nobody asks for, for hosts that went away, and
//! [`obstacle`] says what an operation waits for.

pub mod asking;
pub mod cancel;
pub mod choosing;
pub mod deadlines;
pub mod drain;
pub mod forget;
pub mod grace;
pub mod holds;
pub mod lease;
pub mod obstacle;
pub mod overdue;
pub mod progress;
pub mod replace;
pub mod request;
pub mod take_back;
pub mod watchdog;

pub use cancel::cancel;
pub use request::{
    ClientKey, ReleaseMode, ReleaseTarget, Terms, allocate, allocate_chosen, release,
};
