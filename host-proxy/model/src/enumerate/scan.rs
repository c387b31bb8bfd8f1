//! Finding functions, numbering buses, sizing base address registers, walking capabilities.

use super::{Enumerator, Problem};
use crate::error::AccessError;
use crate::port::TlpPort;
use crate::regs;
use crate::topology::{Bar, BarKind, BridgeInfo, Capability, Node, PortType, bdf};
use tlp_codec::ids::Bdf;

/// Bus numbers that are left to give out: from `next` to `last`, none when `next` is above.
pub(super) struct Buses {
    pub(super) next: u16,
    pub(super) last: u8,
}

impl Buses {
    fn left(&self) -> u8 {
        (u16::from(self.last) + 1).saturating_sub(self.next) as u8
    }

    /// The first of so many numbers, if there are so many.
    fn take(&mut self, count: u8) -> Option<u8> {
        if count == 0 || count > self.left() {
            return None;
        }
        let first = self.next;
        self.next += u16::from(count);
        Some(first as u8)
    }

    /// The highest number that was given out.
    fn highest(&self) -> u8 {
        (self.next - 1) as u8
    }
}

impl<P: TlpPort> Enumerator<'_, P> {
    /// Finds what is on a bus and behind it.
    pub(super) fn scan_bus(
        &mut self,
        bus: u8,
        parent: Option<Bdf>,
        buses: &mut Buses,
    ) -> Result<(), AccessError> {
        let above = parent.and_then(|bdf| self.topology.get(bdf)).and_then(|node| node.port_type);
        // A link has one device on it; only a switch's inner bus has several.
        let devices = if above == Some(PortType::Upstream) { 32 } else { 1 };
        for device in 0..devices {
            let first = bdf(bus, device, 0);
            let Some(header) = self.scan_function(first, parent, buses)? else { continue };
            let functions = if header & 0x80 != 0 { 8 } else { 1 };
            for function in 1..functions {
                self.scan_function(bdf(bus, device, function), parent, buses)?;
            }
        }
        Ok(())
    }

    /// The header type of the function, if there is one.
    fn scan_function(
        &mut self,
        bdf: Bdf,
        parent: Option<Bdf>,
        buses: &mut Buses,
    ) -> Result<Option<u8>, AccessError> {
        let Some(ids) = self.root.probe(bdf)? else { return Ok(None) };
        let header = (self.root.config_read(bdf, regs::HEADER)? >> 16) as u8;
        let node = self.read_function(bdf, parent, ids, header)?;
        tracing::debug!(%bdf, vendor = ids.0, device = ids.1, class = node.class, "found");
        let is_bridge = node.bridge.is_some();
        self.topology.insert(node);
        if is_bridge {
            self.scan_bridge(bdf, buses)?;
        }
        Ok(Some(header))
    }

    fn read_function(
        &mut self,
        bdf: Bdf,
        parent: Option<Bdf>,
        (vendor, device): (u16, u16),
        header: u8,
    ) -> Result<Node, AccessError> {
        let type1 = header & 0x7f == 1;
        let class = self.root.config_read(bdf, regs::CLASS_REVISION)?;
        let subsystem = if type1 { 0 } else { self.root.config_read(bdf, regs::SUBSYSTEM)? };
        // Nothing is decoded or mastered while addresses are found out.
        self.root.config_write(bdf, regs::COMMAND, 2, 0)?;
        let bars = self.size_bars(bdf, if type1 { 2 } else { 6 })?;
        let mut node = Node {
            bdf,
            instance: self.topology.next_instance(),
            parent,
            vendor,
            device,
            subsystem: (subsystem as u16, (subsystem >> 16) as u16),
            class: class >> 8,
            revision: class as u8,
            bars,
            capabilities: self.capabilities(bdf)?,
            extended: self.extended_capabilities(bdf)?,
            port_type: None,
            bridge: None,
            max_payload: 128,
            vectors: None,
            dma: Vec::new(),
        };
        let slot = self.read_express(&mut node)?;
        if type1 {
            let prefetch = self.root.config_read(bdf, regs::PREFETCH_WINDOW)?;
            node.bridge = Some(BridgeInfo {
                secondary: 0,
                subordinate: 0,
                prefetch64: prefetch & 0xf == 1,
                memory: None,
                prefetch: None,
                slot,
            });
        }
        Ok(node)
    }

    /// Reads the PCI Express capability's port type; Slot Capabilities where there is a slot.
    fn read_express(&mut self, node: &mut Node) -> Result<Option<u32>, AccessError> {
        let Some(at) = node.capability(regs::CAP_EXPRESS) else { return Ok(None) };
        let flags = (self.root.config_read(node.bdf, at)? >> 16) as u16;
        let port_type = match flags >> 4 & 0xf {
            0 | 1 => PortType::Endpoint,
            5 => PortType::Upstream,
            6 => PortType::Downstream,
            other => PortType::Other(other as u8),
        };
        node.port_type = Some(port_type);
        // Slot Implemented means something for downstream ports only.
        if flags & 1 << 8 == 0 || port_type != PortType::Downstream {
            return Ok(None);
        }
        self.root.config_read(node.bdf, at + regs::EXP_SLTCAP).map(Some)
    }

    fn scan_bridge(&mut self, bridge: Bdf, buses: &mut Buses) -> Result<(), AccessError> {
        let Some(secondary) = buses.take(1) else {
            self.set_buses(bridge, 0, 0)?;
            self.problem(bridge, Problem::NoBus(bridge));
            return Ok(());
        };
        self.set_buses(bridge, secondary, buses.last)?;
        self.scan_bus(secondary, Some(bridge), buses)?;
        let hot_plug = self.topology.get(bridge).and_then(|node| node.bridge);
        if hot_plug.is_some_and(|info| info.hot_plug()) {
            let used = buses.highest() - secondary + 1;
            let more = self.config.hot_plug.buses.saturating_sub(used).min(buses.left());
            buses.take(more);
        }
        self.set_buses(bridge, secondary, buses.highest())
    }

    fn set_buses(&mut self, bridge: Bdf, secondary: u8, last: u8) -> Result<(), AccessError> {
        if let Some(info) = self.topology.get_mut(bridge).and_then(|node| node.bridge.as_mut()) {
            (info.secondary, info.subordinate) = (secondary, last);
        }
        // The fourth byte is the latency timer, which PCI Express has not.
        let value =
            u32::from(bridge.bus().get()) | u32::from(secondary) << 8 | u32::from(last) << 16;
        self.root.config_write(bridge, regs::BUSES, 4, value)
    }

    /// Writes all ones to each base address register and sees which bits stay
    /// (PCI 3.0 section 6.2.5.1).
    fn size_bars(&mut self, bdf: Bdf, count: usize) -> Result<[Option<Bar>; 6], AccessError> {
        let mut bars = [None; 6];
        let mut index = 0;
        while index < count {
            let register = regs::BAR0 + 4 * index as u16;
            let mask = self.size_bar(bdf, register)?;
            if mask == 0 || mask == u32::MAX {
                index += 1;
                continue;
            }
            let io = mask & 1 != 0;
            let wide = !io && mask >> 1 & 3 == 2 && index + 1 < count;
            let upper = if wide { self.size_bar(bdf, register + 4)? } else { u32::MAX };
            let low = if io { mask & !3 | 0xffff_0000 } else { mask & !0xf };
            let size = (u64::from(upper) << 32 | u64::from(low)).wrapping_neg();
            if size.is_power_of_two() {
                bars[index] = Some(Bar {
                    kind: match (io, wide) {
                        (true, _) => BarKind::Io,
                        (false, true) => BarKind::Memory64,
                        (false, false) => BarKind::Memory32,
                    },
                    prefetchable: !io && mask & 8 != 0,
                    size,
                    address: None,
                });
            }
            index += if wide { 2 } else { 1 };
        }
        Ok(bars)
    }

    fn size_bar(&mut self, bdf: Bdf, register: u16) -> Result<u32, AccessError> {
        self.root.config_write(bdf, register, 4, u32::MAX)?;
        let mask = self.root.config_read(bdf, register)?;
        self.root.config_write(bdf, register, 4, 0)?;
        Ok(mask)
    }

    /// Walks the capability list. A list that does not end is cut off.
    fn capabilities(&mut self, bdf: Bdf) -> Result<Vec<Capability>, AccessError> {
        let mut list: Vec<Capability> = Vec::new();
        let status = (self.root.config_read(bdf, regs::COMMAND)? >> 16) as u16;
        if status & regs::STATUS_CAPABILITIES == 0 {
            return Ok(list);
        }
        let mut offset = (self.root.config_read(bdf, regs::CAPABILITY_POINTER)? & 0xfc) as u16;
        // 192 bytes behind the header hold at most 48 capabilities.
        while offset >= 0x40 && list.len() < 48 {
            let header = self.root.config_read(bdf, offset)?;
            if header == u32::MAX {
                break;
            }
            list.push(Capability { id: (header & 0xff) as u16, offset });
            offset = (header >> 8 & 0xfc) as u16;
        }
        Ok(list)
    }

    fn extended_capabilities(&mut self, bdf: Bdf) -> Result<Vec<Capability>, AccessError> {
        let mut list = Vec::new();
        let mut offset = 0x100;
        // 3840 bytes hold at most 480 of 8 bytes.
        while offset >= 0x100 && list.len() < 480 {
            let header = self.root.config_read(bdf, offset)?;
            if header == u32::MAX || header == 0 {
                break;
            }
            list.push(Capability { id: header as u16, offset });
            offset = (header >> 20 & 0xffc) as u16;
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_numbers_run_out_without_wrapping() {
        let mut buses = Buses { next: 0xfe, last: 0xff };
        assert_eq!(buses.left(), 2);
        assert_eq!(buses.take(3), None);
        assert_eq!(buses.take(2), Some(0xfe));
        assert_eq!(buses.left(), 0);
        assert_eq!(buses.take(1), None);
        let mut small = Buses { next: 5, last: 4 };
        assert_eq!((small.left(), small.take(1)), (0, None));
        assert_eq!(buses.highest(), 0xff);
    }
}
