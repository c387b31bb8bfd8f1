//! Sessions of a client that is not the server's own, at a real socket.

mod basics;
mod bench;
mod client;
mod dma_maps;
mod dma_messages;
mod hostile;
mod infos;
mod irqs;
mod listen;
mod qemu;
mod regions;
mod versions;

/// Errors, as Linux numbers them: the server's own names are not asked.
mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const E2BIG: i32 = 7;
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const EACCES: i32 = 13;
    pub(crate) const EEXIST: i32 = 17;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const EOPNOTSUPP: i32 = 95;
}
