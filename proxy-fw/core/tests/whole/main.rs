//! The two roles together: a device lent, used, taken back; and everything that can go wrong.

#[path = "../world/mod.rs"]
mod world;

mod bus_reset;
mod causes;
mod control_docs;
mod ends;
mod enumeration;
mod functions;
mod hostile;
mod hung;
mod joining;
mod managed;
mod must_pass;
mod no_room;
mod owned;
mod peers;
mod plain_writes;
mod recorder;
mod renewal;
mod requests;
mod stalled;
mod turns;
