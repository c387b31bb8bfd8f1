//! Taking functions out of use.

use super::{HostEvent, ModelHost};
use crate::port::TlpPort;
use crate::regs;
use tlp_codec::ids::Bdf;

impl<P: TlpPort> ModelHost<P> {
    /// Takes everything behind a bridge out of use, what is deepest first.
    pub(crate) fn remove_below(&mut self, bridge: Bdf, gone: bool) {
        for bdf in self.topology.below(bridge) {
            self.remove_function(bdf, gone);
        }
    }

    /// Takes one function out of use: its driver lets go (or is told that the device is gone),
    /// decoding and mastering end, its vectors and memory are free again.
    pub(crate) fn remove_function(&mut self, bdf: Bdf, gone: bool) {
        self.unbind(bdf, gone);
        if !gone {
            // As pciehp does: nothing of it may reach memory any more.
            let quiet = u32::from(regs::COMMAND_INTX_DISABLE);
            if let Err(error) = self.root.config_write(bdf, regs::COMMAND, 2, quiet) {
                tracing::warn!(%bdf, %error, "Bus Master could not be cleared");
            }
        }
        let Some(node) = self.topology.remove(bdf) else { return };
        if let Some(vectors) = node.vectors {
            self.root.interrupts().release(vectors.first, vectors.count);
        }
        // What a driver could not give back: the function can reach nothing any more.
        for (address, len) in node.dma {
            self.root.memory_mut().release(address, len);
        }
        self.root.forget_payload(bdf);
        let (port, vendor, device) = (node.parent, node.vendor, node.device);
        self.event(HostEvent::DeviceRemoved { port, bdf, vendor, device, surprise: gone });
    }
}
