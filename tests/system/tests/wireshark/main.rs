//! The Wireshark dissector (`tlp-codec/wireshark/dxpu.lua`), judged with tshark: what it shows of
//! the vectors, of a link with losses, of the simulator and of the demo is compared field by field
//! with what the codec reads, and bytes that were damaged must not make it fail.

mod capture;
mod compare;
mod damaged;
mod demo;
mod link;
mod random;
mod simulator;
mod traffic;
mod tshark;
mod vectors;
