//! The talk with the manager: IP, a TCP connection, and the control protocol in it.

mod conversation;
mod stack;

pub use conversation::{Conversation, Heard, Lost};
pub use stack::{Addressing, Management, ManagementConfig};
