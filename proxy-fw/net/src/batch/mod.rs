//! Many frames with one system call: `sendmmsg(2)` and `recvmmsg(2)`.
//!
//! | file | what |
//! |---|---|
//! | `send` | frames that wait to be sent, and the messages that they go in |
//! | `receive` | messages that arrived, and the frames in them |
//! | `name` | socket addresses as the kernel has them |
//!
//! Over UDP one message carries a run of frames, where the kernel can segment it (udp(7),
//! `UDP_SEGMENT` and `UDP_GRO`): a run then takes the way through the kernel once. Everywhere else
//! each frame is a message of its own.

mod name;
mod receive;
mod send;

pub(crate) use receive::ReceiveBatch;
pub(crate) use send::SendBatch;
