//! Sessions of a client that is not the server's own, at a real socket.

mod basics;
mod bench;
mod client;
