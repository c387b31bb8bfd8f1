//! The protocol of binding, fencing, release and take-over as a model that `stateright` explores.
//!
//! The managers' decisions are not modelled: the model calls the code that makes them
//! (`reconcile::action`, `reconcile::compare`, `operations::progress`, the records' terms and
//! epochs). What is modelled is what is around it: two managers and their connections, a box with
//! one slot, two hosts with one port each, the TLPs between them, and all that can go wrong.
//! [`lifecycle`] is a second model, of operations, erasures and devices that are carried about.
//! `manager/docs/protocol-model.md` says what is in it and what is not.

#![forbid(unsafe_code)]

mod fair;
mod happenings;
mod leader;
pub mod lifecycle;
mod proxies;
mod records;
mod seen;
mod space;

pub use fair::settles;
pub use proxies::{Answer, Body, BoxProxy, HostProxy, Request, Tlp, Way};
pub use records::Records;
pub use seen::{EndsSeen, Seen, desired_number, phase_number};
pub use space::{Act, Bounds, Bug, Protocol, State, Wrong};
