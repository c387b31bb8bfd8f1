//! The tree of functions, for people and for programs.

use crate::drivers::Drivers;
use crate::host::ModelHost;
use crate::hotplug::SlotState;
use crate::port::TlpPort;
use crate::root::FIRST_BUS;
use crate::topology::{BarKind, Node, PortType, Range};
use serde::{Serialize, Serializer};
use std::fmt;
use tlp_codec::ids::Bdf;

/// Serialises as it is printed.
pub(crate) fn text<T: fmt::Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}

/// As [`text`], of a value that may be missing.
pub(crate) fn optional_text<T: fmt::Display, S: Serializer>(
    value: &Option<T>,
    s: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => s.collect_str(value),
        None => s.serialize_none(),
    }
}

/// Everything below the root port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// What is on the root port's link.
    pub devices: Vec<TreeNode>,
}

/// One function and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TreeNode {
    /// Where it is.
    #[serde(serialize_with = "text")]
    pub bdf: Bdf,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor and device ID.
    pub subsystem: (u16, u16),
    /// Class code, 24 bits.
    pub class: u32,
    /// What the class code means.
    pub class_name: &'static str,
    /// Revision.
    pub revision: u8,
    /// The driver that is bound.
    pub driver: Option<&'static str>,
    /// Largest payload in force, bytes.
    pub max_payload: u16,
    /// Base address registers.
    pub bars: Vec<TreeBar>,
    /// Set for bridges.
    pub bridge: Option<TreeBridge>,
    /// What is behind it.
    pub children: Vec<TreeNode>,
}

/// A base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TreeBar {
    /// Its (lower) register's number.
    pub index: u8,
    /// `32-bit`, `64-bit` or `io`.
    pub kind: &'static str,
    /// Whether it is prefetchable.
    pub prefetchable: bool,
    /// Bytes.
    pub size: u64,
    /// Where it is, unless there was no room.
    pub address: Option<u64>,
}

/// What a bridge has besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TreeBridge {
    /// `upstream port`, `downstream port` or `bridge`.
    pub kind: &'static str,
    /// The bus behind it.
    pub secondary: u8,
    /// The highest bus behind it.
    pub subordinate: u8,
    /// Its 32-bit window.
    #[serde(serialize_with = "optional_text")]
    pub memory: Option<Range>,
    /// Its 64-bit prefetchable window.
    #[serde(serialize_with = "optional_text")]
    pub prefetch: Option<Range>,
    /// State of its slot: `empty`, `turning on`, `in use`, `turning off`.
    pub slot: Option<&'static str>,
}

/// Names of classes, from the PCI Code and ID Assignment specification.
const fn class_name(class: u32) -> &'static str {
    match (class >> 16, class >> 8 & 0xff, class & 0xff) {
        (0x01, 0x08, 0x02) => "NVMe controller",
        (0x01, ..) => "storage controller",
        (0x02, ..) => "network controller",
        (0x03, ..) => "display controller",
        (0x06, 0x04, _) => "PCI bridge",
        (0x06, ..) => "bridge",
        (0x08, ..) => "system peripheral",
        (0x0b, ..) => "processor",
        (0x12, ..) => "processing accelerator",
        (0xff, ..) => "unassigned class",
        _ => "device",
    }
}

impl<P: TlpPort> ModelHost<P> {
    /// Everything below the root port.
    pub fn tree(&self) -> Tree {
        Tree { devices: self.branch(None) }
    }

    fn branch(&self, parent: Option<Bdf>) -> Vec<TreeNode> {
        let nodes = self.topology.children(parent);
        nodes.map(|node| self.leaf(node, &self.drivers)).collect()
    }

    fn leaf(&self, node: &Node, drivers: &Drivers) -> TreeNode {
        TreeNode {
            bdf: node.bdf,
            vendor: node.vendor,
            device: node.device,
            subsystem: node.subsystem,
            class: node.class,
            class_name: class_name(node.class),
            revision: node.revision,
            driver: drivers.name(node.instance),
            max_payload: node.max_payload,
            bars: bars(node),
            bridge: self.bridge(node),
            children: self.branch(Some(node.bdf)),
        }
    }

    fn bridge(&self, node: &Node) -> Option<TreeBridge> {
        let bridge = node.bridge?;
        Some(TreeBridge {
            kind: match node.port_type {
                Some(PortType::Upstream) => "upstream port",
                Some(PortType::Downstream) => "downstream port",
                _ => "bridge",
            },
            secondary: bridge.secondary,
            subordinate: bridge.subordinate,
            memory: bridge.memory,
            prefetch: bridge.prefetch,
            slot: self.slots.state(node.bdf).map(|state| match state {
                SlotState::Off => "empty",
                SlotState::BlinkingOn => "turning on",
                SlotState::On => "in use",
                SlotState::BlinkingOff => "turning off",
            }),
        })
    }
}

fn bars(node: &Node) -> Vec<TreeBar> {
    let there = node.bars.iter().enumerate().filter_map(|(index, bar)| Some((index, (*bar)?)));
    there
        .map(|(index, bar)| TreeBar {
            index: index as u8,
            kind: match bar.kind {
                BarKind::Memory32 => "32-bit",
                BarKind::Memory64 => "64-bit",
                BarKind::Io => "io",
            },
            prefetchable: bar.prefetchable,
            size: bar.size,
            address: bar.address,
        })
        .collect()
}

impl fmt::Display for Tree {
    /// As `lspci -tv` would, a function to a line, its registers below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "00:00.0 root port, bus {FIRST_BUS:02x}")?;
        for (i, device) in self.devices.iter().enumerate() {
            device.write(f, "", i + 1 == self.devices.len())?;
        }
        Ok(())
    }
}

impl TreeNode {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str, last: bool) -> fmt::Result {
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        write!(f, "{indent}{branch}{} ", self.bdf)?;
        match &self.bridge {
            Some(bridge) => write!(f, "{}", bridge.kind)?,
            None => write!(f, "{}", self.class_name)?,
        }
        write!(f, " {:04x}:{:04x}", self.vendor, self.device)?;
        if let Some(bridge) = &self.bridge {
            write!(f, ", bus {:02x}-{:02x}", bridge.secondary, bridge.subordinate)?;
            for window in [bridge.memory, bridge.prefetch].into_iter().flatten() {
                write!(f, ", {window}")?;
            }
            if let Some(slot) = bridge.slot {
                write!(f, ", slot {slot}")?;
            }
        }
        if let Some(driver) = self.driver {
            write!(f, ", driver {driver}")?;
        }
        writeln!(f)?;
        let indent = format!("{indent}{below}");
        for bar in &self.bars {
            let more = if self.children.is_empty() { "   " } else { "│  " };
            write!(f, "{indent}{more}BAR {}: ", bar.index)?;
            match bar.address {
                Some(address) => write!(f, "{address:#x}")?,
                None => write!(f, "no address")?,
            }
            let prefetchable = if bar.prefetchable { ", prefetchable" } else { "" };
            writeln!(f, ", {} bytes, {}{prefetchable}", bar.size, bar.kind)?;
        }
        for (i, child) in self.children.iter().enumerate() {
            child.write(f, &indent, i + 1 == self.children.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::bdf;

    fn node(bdf: Bdf, children: Vec<TreeNode>) -> TreeNode {
        TreeNode {
            bdf,
            vendor: 0x1b36,
            device: 0x10,
            subsystem: (0, 0),
            class: 0x01_0802,
            class_name: class_name(0x01_0802),
            revision: 0,
            driver: None,
            max_payload: 128,
            bars: Vec::new(),
            bridge: None,
            children,
        }
    }

    #[test]
    fn a_tree_is_drawn_with_its_branches() {
        let mut drive = node(bdf(2, 0, 0), Vec::new());
        drive.driver = Some("nvme");
        drive.bars.push(TreeBar {
            index: 0,
            kind: "64-bit",
            prefetchable: false,
            size: 16384,
            address: Some(0xc000_0000),
        });
        let mut port = node(bdf(1, 0, 0), vec![drive]);
        port.bridge = Some(TreeBridge {
            kind: "downstream port",
            secondary: 2,
            subordinate: 5,
            memory: Some(Range { base: 0xc000_0000, size: 0x10_0000 }),
            prefetch: None,
            slot: Some("in use"),
        });
        let tree = Tree { devices: vec![port, node(bdf(1, 1, 0), Vec::new())] };
        assert_eq!(
            tree.to_string(),
            "00:00.0 root port, bus 01\n\
             ├─ 01:00.0 downstream port 1b36:0010, bus 02-05, 0xc0000000-0xc00fffff, slot in use\n\
             │  └─ 02:00.0 NVMe controller 1b36:0010, driver nvme\n\
             │        BAR 0: 0xc0000000, 16384 bytes, 64-bit\n\
             └─ 01:01.0 NVMe controller 1b36:0010\n"
        );
    }
}
