//! What the host knows of the functions below its root port.

use std::collections::BTreeMap;
use std::fmt;
use tlp_codec::ids::{Bdf, Bus, Device, Function};

use crate::interrupts::Vector;

/// A range of bus addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Bytes, not 0.
    pub size: u64,
}

impl Range {
    /// The last address.
    pub const fn limit(self) -> u64 {
        self.base + (self.size - 1)
    }

    /// Whether an address is in it.
    pub const fn contains(self, address: u64) -> bool {
        address >= self.base && address - self.base < self.size
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.base, self.limit())
    }
}

/// What a base address register decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// Memory, with a 32-bit address.
    Memory32,
    /// Memory, with a 64-bit address in two registers.
    Memory64,
    /// I/O. This host assigns none.
    Io,
}

/// A base address register that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// What it decodes.
    pub kind: BarKind,
    /// Whether reads of it have no side effects.
    pub prefetchable: bool,
    /// Bytes, a power of two.
    pub size: u64,
    /// Where it was put, if it was.
    pub address: Option<u64>,
}

/// A capability's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its number.
    pub id: u16,
    /// Where it starts.
    pub offset: u16,
}

/// Device/Port Type of the PCI Express capability (PCIe 5.0 section 7.5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortType {
    /// Endpoint, or legacy endpoint.
    Endpoint,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
    /// Anything else, as its number.
    Other(u8),
}

/// What a bridge has besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeInfo {
    /// The bus behind it.
    pub secondary: u8,
    /// The highest bus behind it.
    pub subordinate: u8,
    /// Whether its prefetchable window has 64-bit addresses.
    pub prefetch64: bool,
    /// Its 32-bit window.
    pub memory: Option<Range>,
    /// Its 64-bit prefetchable window.
    pub prefetch: Option<Range>,
    /// Slot Capabilities, when it has a slot.
    pub slot: Option<u32>,
}

impl BridgeInfo {
    /// Whether devices can come and go behind it.
    pub fn hot_plug(&self) -> bool {
        self.slot.is_some_and(|slot| slot & crate::regs::slot::CAP_HOTPLUG != 0)
    }
}

/// Vectors that a function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// How they are signalled.
    pub kind: VectorKind,
    /// The first.
    pub first: Vector,
    /// How many.
    pub count: u16,
}

/// How a function signals interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorKind {
    /// MSI.
    Msi,
    /// MSI-X.
    MsiX,
}

/// One function.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is.
    pub bdf: Bdf,
    /// A number that no other function has or had: the same place may see many.
    pub instance: u64,
    /// The bridge above, none for what is on the root port's link.
    pub parent: Option<Bdf>,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor and device IDs, 0 for bridges.
    pub subsystem: (u16, u16),
    /// Class code: base class, subclass, programming interface.
    pub class: u32,
    /// Revision.
    pub revision: u8,
    /// Base address registers by their (lower) register's number.
    pub bars: [Option<Bar>; 6],
    /// Capabilities in configuration space's first 256 bytes.
    pub capabilities: Vec<Capability>,
    /// Extended capabilities.
    pub extended: Vec<Capability>,
    /// Device/Port Type, when it has the PCI Express capability.
    pub port_type: Option<PortType>,
    /// Set for bridges.
    pub bridge: Option<BridgeInfo>,
    /// Largest payload in force, bytes.
    pub max_payload: u16,
    /// Interrupts, when they were set up.
    pub vectors: Option<Vectors>,
    /// Memory that it was given for DMA: address and length of each run.
    pub dma: Vec<(u64, usize)>,
}

impl Node {
    /// Where a capability starts.
    pub fn capability(&self, id: u8) -> Option<u16> {
        self.capabilities.iter().find(|cap| cap.id == id.into()).map(|cap| cap.offset)
    }

    /// Where an extended capability starts.
    pub fn extended_capability(&self, id: u16) -> Option<u16> {
        self.extended.iter().find(|cap| cap.id == id).map(|cap| cap.offset)
    }
}

/// Every function below the root port.
#[derive(Default)]
pub struct Topology {
    nodes: BTreeMap<Bdf, Node>,
    instances: u64,
}

impl Topology {
    /// A number for the next function.
    pub(crate) fn next_instance(&mut self) -> u64 {
        self.instances += 1;
        self.instances
    }

    pub(crate) fn insert(&mut self, node: Node) {
        self.nodes.insert(node.bdf, node);
    }

    pub(crate) fn remove(&mut self, bdf: Bdf) -> Option<Node> {
        self.nodes.remove(&bdf)
    }

    /// The function at a place.
    pub fn get(&self, bdf: Bdf) -> Option<&Node> {
        self.nodes.get(&bdf)
    }

    pub(crate) fn get_mut(&mut self, bdf: Bdf) -> Option<&mut Node> {
        self.nodes.get_mut(&bdf)
    }

    /// Every function, by bus, device and function number.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// What is right below a bridge, or below the root port.
    pub fn children(&self, parent: Option<Bdf>) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(move |node| node.parent == parent)
    }

    /// Everything below a bridge, what is deepest first.
    pub fn below(&self, bridge: Bdf) -> Vec<Bdf> {
        let mut all = Vec::new();
        for child in self.children(Some(bridge)) {
            all.extend(self.below(child.bdf));
            all.push(child.bdf);
        }
        all
    }

    /// The function whose base address register decodes an address: function, register, offset.
    pub fn decode(&self, address: u64) -> Option<(&Node, u8, u64)> {
        self.nodes.values().find_map(|node| {
            node.bars.iter().enumerate().find_map(|(index, bar)| {
                let bar = (*bar)?;
                let range = Range { base: bar.address?, size: bar.size };
                range.contains(address).then(|| (node, index as u8, address - range.base))
            })
        })
    }
}

/// A function's ID from its parts, where they are known to be in range.
pub(crate) fn bdf(bus: u8, device: u8, function: u8) -> Bdf {
    let device = Device::new(device).expect("device numbers are below 32");
    let function = Function::new(function).expect("function numbers are below 8");
    Bdf::new(Bus::new(bus).expect("every byte is a bus number"), device, function)
}
