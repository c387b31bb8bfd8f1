//! Two links as a pair, with a virtual clock and a network that loses, doubles, reorders, damages
//! and delays, all from a seed.

mod bad_frames;
mod behaviour;
mod chaos;
mod late;
mod losses;
mod must_pass;
mod network;
mod oracle;
mod pair;
mod paths;
mod planted;
mod shares;
