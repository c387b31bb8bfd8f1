//! Makes the proxies' tables and the records agree.
//!
//! - [`action`]: what to do next about one binding; pure.
//! - [`driver`]: does it, for every binding that may need it, one step at a time.
//! - `steps`: what it asks proxies for, and what it records of their answers.
//! - [`diff`]: what a proxy's table has that the records do not, and the other way; pure.
//! - [`compare`]: what a proxy's tables change in the records; pure.
//! - [`sound`]: what of a proxy's report can be; pure.
//! - [`sync`]: reads a proxy's tables (when it connects, when events say so, now and then), compares
//!   and repairs.
//! - [`unsettled`]: has what is not as it is wanted looked at again, now and then.

pub mod action;
pub mod compare;
pub mod diff;
pub mod driver;
pub mod sound;
mod steps;
pub mod sync;
pub mod unsettled;
