//! Writing addresses, sizes and enables into functions.

use super::{Enumerator, Problem};
use crate::error::AccessError;
use crate::interrupts::Vector;
use crate::port::TlpPort;
use crate::regs;
use crate::root::RootComplex;
use crate::topology::{BarKind, BridgeInfo, Node, PortType, VectorKind, Vectors};
use tlp_codec::ids::Bdf;

/// Access Control Services that are turned on where they are offered: source validation,
/// redirection of requests and completions, upstream forwarding.
const ACS_SERVICES: u16 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4;

impl<P: TlpPort> Enumerator<'_, P> {
    /// Sets up a function and all that is behind it.
    pub(super) fn set_up_tree(&mut self, bdf: Bdf) -> Result<(), AccessError> {
        let Some(node) = self.topology.get(bdf).cloned() else { return Ok(()) };
        self.write_bars(&node)?;
        if let Some(bridge) = node.bridge {
            self.write_windows(bdf, &bridge)?;
            let control = regs::BRIDGE_SERR;
            self.root.config_write(bdf, regs::BRIDGE_CONTROL, 2, control.into())?;
        }
        self.set_up_express(&node)?;
        if let Some(acs) = node.extended_capability(regs::EXT_ACS)
            && node.port_type == Some(PortType::Downstream)
        {
            let offered = self.root.config_read(bdf, acs + 4)? as u16;
            self.root.config_write(bdf, acs + 6, 2, (offered & ACS_SERVICES).into())?;
        }
        if node.bridge.is_some() {
            self.set_up_port_interrupt(&node)?;
        }
        self.root.config_write(bdf, regs::COMMAND, 2, command(&node).into())?;
        let below: Vec<Bdf> = self.topology.children(Some(bdf)).map(|node| node.bdf).collect();
        for bdf in below {
            self.set_up_tree(bdf)?;
        }
        Ok(())
    }

    fn write_bars(&mut self, node: &Node) -> Result<(), AccessError> {
        for (index, bar) in node.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let address = bar.address.unwrap_or(0);
            let register = regs::BAR0 + 4 * index as u16;
            self.root.config_write(node.bdf, register, 4, address as u32)?;
            if bar.kind == BarKind::Memory64 {
                self.root.config_write(node.bdf, register + 4, 4, (address >> 32) as u32)?;
            }
        }
        Ok(())
    }

    fn write_windows(&mut self, bdf: Bdf, bridge: &BridgeInfo) -> Result<(), AccessError> {
        let root = &mut *self.root;
        // A base above the limit closes a window (PCI-to-PCI Bridge 1.2 section 3.2.5.8).
        root.config_write(bdf, regs::IO_WINDOW_UPPER, 4, 0)?;
        root.config_write(bdf, regs::IO_WINDOW, 2, 0x00f0)?;
        let window = |base: u64, limit: u64| {
            (base >> 16 & 0xfff0) as u32 | ((limit >> 16 & 0xfff0) as u32) << 16
        };
        let memory = bridge.memory.map_or(0xfff0, |range| window(range.base, range.limit()));
        root.config_write(bdf, regs::MEMORY_WINDOW, 4, memory)?;
        let (low, base, limit) = match bridge.prefetch {
            Some(range) => {
                (window(range.base, range.limit()), range.base >> 32, range.limit() >> 32)
            }
            None => (0xfff0, 0, 0),
        };
        if bridge.prefetch64 {
            // While the halves are written the window is closed: its limit is below its base.
            root.config_write(bdf, regs::PREFETCH_LIMIT_UPPER, 4, 0)?;
            root.config_write(bdf, regs::PREFETCH_BASE_UPPER, 4, base as u32)?;
        }
        root.config_write(bdf, regs::PREFETCH_WINDOW, 4, low)?;
        if bridge.prefetch64 {
            root.config_write(bdf, regs::PREFETCH_LIMIT_UPPER, 4, limit as u32)?;
        }
        Ok(())
    }

    /// Payload and read request sizes, extended tags, error reporting, completion boundary.
    fn set_up_express(&mut self, node: &Node) -> Result<(), AccessError> {
        let Some(at) = node.capability(regs::CAP_EXPRESS) else { return Ok(()) };
        let bdf = node.bdf;
        let capabilities = self.root.config_read(bdf, at + regs::EXP_DEVCAP)?;
        let above = node.parent.and_then(|parent| self.topology.get(parent));
        let most = above.map_or(self.config.max_payload, |parent| parent.max_payload);
        let supported = 128_u16 << (capabilities & 7).min(5);
        let payload = supported.min(most).min(self.root.config().max_payload);
        if let Some(node) = self.topology.get_mut(bdf) {
            node.max_payload = payload;
        }
        self.root.set_payload(bdf, payload);
        let mut control = regs::DEVCTL_ERRORS
            | regs::DEVCTL_RELAXED
            | regs::DEVCTL_NO_SNOOP
            | encode(payload) << 5
            | encode(self.config.max_read_request) << 12;
        if capabilities & regs::DEVCAP_EXT_TAG != 0 {
            control |= regs::DEVCTL_EXT_TAG;
        }
        self.root.config_write(bdf, at + regs::EXP_DEVCTL, 2, control.into())?;
        if node.port_type == Some(PortType::Endpoint)
            && self.root.config().read_completion_boundary == 128
        {
            let link = self.root.config_read(bdf, at + regs::EXP_LNKCTL)? as u16;
            let link = u32::from(link | regs::LNKCTL_RCB);
            self.root.config_write(bdf, at + regs::EXP_LNKCTL, 2, link)?;
        }
        Ok(())
    }

    /// One MSI vector for a port: hot-plug and errors.
    fn set_up_port_interrupt(&mut self, node: &Node) -> Result<(), AccessError> {
        let bdf = node.bdf;
        let Some(at) = node.capability(regs::CAP_MSI) else {
            if node.bridge.is_some_and(|bridge| bridge.hot_plug()) {
                self.problem(bdf, Problem::NoInterrupt(bdf));
            }
            return Ok(());
        };
        let Some(vector) = self.root.interrupts().allocate(1) else {
            self.problem(bdf, Problem::NoVector(bdf));
            return Ok(());
        };
        enable_msi(self.root, bdf, at, vector, 1)?;
        if let Some(node) = self.topology.get_mut(bdf) {
            node.vectors = Some(Vectors { kind: VectorKind::Msi, first: vector, count: 1 });
        }
        Ok(())
    }
}

/// Bridges pass memory requests in both directions; an endpoint decodes memory when all of its
/// registers have a place. Everything may master: nothing is below that was not put there.
fn command(node: &Node) -> u16 {
    let quiet = regs::COMMAND_SERR | regs::COMMAND_INTX_DISABLE;
    let placed = |bar: &crate::topology::Bar| bar.kind == BarKind::Io || bar.address.is_some();
    if node.bridge.is_some() || node.bars.iter().flatten().all(placed) {
        quiet | regs::COMMAND_MEMORY | regs::COMMAND_MASTER
    } else {
        quiet
    }
}

/// Bytes as Device Control has them: 128 is 0.
fn encode(bytes: u16) -> u16 {
    (bytes.max(128).ilog2() - 7) as u16
}

/// Writes address and data of `count` vectors (a power of two) into an MSI capability and turns it
/// on (PCIe 5.0 section 7.7.1).
pub(crate) fn enable_msi<P: TlpPort>(
    root: &mut RootComplex<P>,
    bdf: Bdf,
    at: u16,
    first: Vector,
    count: u16,
) -> Result<(), AccessError> {
    let control = (root.config_read(bdf, at)? >> 16) as u16;
    let (wide, maskable) = (control & 1 << 7 != 0, control & 1 << 8 != 0);
    root.config_write(bdf, at + 4, 4, first.address() as u32)?;
    let data = if wide {
        root.config_write(bdf, at + 8, 4, (first.address() >> 32) as u32)?;
        at + 12
    } else {
        at + 8
    };
    root.config_write(bdf, data, 2, first.data())?;
    if maskable {
        root.config_write(bdf, data + 4, 4, 0)?;
    }
    let messages = count.ilog2() as u16;
    let control = control & !(7 << 4) | messages << 4 | 1;
    root.config_write(bdf, at + 2, 2, control.into())
}
