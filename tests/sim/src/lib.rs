//! `dxpu-sim`: a whole fabric in one thread, from a seed.
//!
//! Hosts with operating systems and drivers, boxes with devices, switches with queues, and between
//! them the proxies' own code, unchanged: [`proxy_core`]'s host and box roles. Time is virtual and
//! jumps from one event to the next. One seed, one profile and one commit give one run, to the
//! byte; [`run::Outcome::hash`] says so. Oracles (`oracle`) watch every step.
//!
//! | module | what |
//! |---|---|
//! | [`run`] | one seed from begin to end, and what came of it |
//! | [`profile`] | what kind of fabric, work and faults: TOML |
//! | `schedule` | what happens when: made from the seed, shortened, played again |
//! | `world` | everything at once |
//! | `network`, `host`, `device`, `director` | the models around the proxies |
//! | `oracle` | what must hold |
//! | `trace`, `pcap` | what happened |
//! | [`cli`] | the program |

pub mod cli;
pub mod profile;
pub mod run;

mod clock;
mod device;
mod director;
mod dress;
mod egress;
mod host;
mod late;
mod lender;
mod manager;
mod minimise;
mod network;
mod oracle;
mod pattern;
mod pcap;
mod random;
mod schedule;
mod trace;
mod world;

pub use oracle::Violation;
