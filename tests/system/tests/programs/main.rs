//! The programs as people run them: each a process of its own, on ports that the system chose.

mod bad_settings;
mod demo;
mod garbage;
mod grace;
mod harness;
mod kills;
mod memory;
mod paths;
mod recorder;
mod refusals;
