//! Where the frames travel: UDP on loopback, or raw Ethernet between two network namespaces.

use crate::leftovers;
use crate::process;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// The fabric under the demo.
pub(crate) enum Fabric {
    /// UDP on loopback; no privileges needed.
    Udp,
    /// Raw Ethernet on veth pairs between two namespaces.
    Ethernet(Namespaces),
}

/// Two network namespaces, one for the host and the manager and one for the boxes; gone when
/// dropped. Each box has a veth pair of its own, so that no frame wakes the other; their near ends
/// are ports of a bridge, which is the Ethernet switch, and the bridge is the host's interface.
/// What proxies and manager say to each other travels on a third pair.
pub(crate) struct Namespaces {
    host: String,
    boxes: String,
    keep: bool,
}

/// The boxes, and the far ends of their pairs.
const BOX_INTERFACES: [(&str, &str); 2] = [("box-a", "dxpu-box-a"), ("box-b", "dxpu-box-b")];
const SWITCH: &str = "dxpu-host";
const CONTROL: &str = "dxpu-control";
const HOST_ADDRESS: &str = "10.213.0.1";
const BOX_ADDRESS: &str = "10.213.0.2";
const MTU: &str = "9000";

impl Fabric {
    /// Makes the namespaces.
    ///
    /// # Errors
    ///
    /// Without root: what to do.
    pub(crate) fn ethernet() -> Result<Self> {
        // SAFETY: geteuid(2) only returns a number.
        if unsafe { libc::geteuid() } != 0 {
            bail!(
                "--l2 makes network namespaces and raw sockets, which needs root: \
                 run `sudo ./dx demo --l2`, or leave --l2 out to use UDP on loopback"
            );
        }
        let [host, boxes] = leftovers::namespaces(std::process::id());
        let spaces = Namespaces { host, boxes, keep: false };
        spaces.make().context("network namespaces (package iproute2)")?;
        Ok(Self::Ethernet(spaces))
    }

    /// Namespace of the manager and the host proxy.
    pub(crate) fn host_namespace(&self) -> Option<&str> {
        match self {
            Self::Udp => None,
            Self::Ethernet(spaces) => Some(&spaces.host),
        }
    }

    /// Namespace of the box proxies.
    pub(crate) fn box_namespace(&self) -> Option<&str> {
        match self {
            Self::Udp => None,
            Self::Ethernet(spaces) => Some(&spaces.boxes),
        }
    }

    /// Fabric setting of the host proxy.
    pub(crate) fn host_setting(&self) -> String {
        match self {
            Self::Udp => "udp:127.0.0.1:0".into(),
            Self::Ethernet(_) => format!("eth:{SWITCH}"),
        }
    }

    /// Fabric setting of a box proxy.
    ///
    /// # Errors
    ///
    /// When there is no such box.
    pub(crate) fn box_setting(&self, name: &str) -> Result<String> {
        match self {
            Self::Udp => Ok("udp:127.0.0.1:0".into()),
            Self::Ethernet(_) => {
                let of_box = BOX_INTERFACES.iter().find(|(of, _)| *of == name);
                let (_, interface) = of_box.with_context(|| format!("{name} has no interface"))?;
                Ok(format!("eth:{interface}"))
            }
        }
    }

    /// Address that the manager listens on.
    pub(crate) fn manager_address(&self) -> &'static str {
        match self {
            Self::Udp => "127.0.0.1",
            Self::Ethernet(_) => HOST_ADDRESS,
        }
    }

    /// What it is, for people.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Udp => "UDP on loopback",
            Self::Ethernet(_) => {
                "raw Ethernet between two network namespaces, a veth pair for each box"
            }
        }
    }

    /// Leaves the namespaces when dropped; what removes them.
    pub(crate) fn keep(&mut self) -> Option<String> {
        match self {
            Self::Udp => None,
            Self::Ethernet(spaces) => {
                spaces.keep = true;
                let [host, boxes] = [&spaces.host, &spaces.boxes];
                Some(format!("ip netns delete {host}; ip netns delete {boxes}"))
            }
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    process::output(Command::new("ip").args(arguments)).map(drop)
}

/// As [`ip`], with the words in one text.
fn ip_line(line: &str) -> Result<()> {
    ip(&line.split_whitespace().collect::<Vec<_>>())
}

impl Namespaces {
    fn make(&self) -> Result<()> {
        let Self { host, boxes, .. } = self;
        for space in [host, boxes] {
            ip(&["netns", "add", space])?;
            ip(&["-n", space, "link", "set", "lo", "up"])?;
        }
        ip_line(&format!("-n {host} link add {SWITCH} mtu {MTU} type bridge"))?;
        for (name, interface) in BOX_INTERFACES {
            self.pair(&format!("to-{name}"), interface)?;
            ip_line(&format!("-n {host} link set to-{name} master {SWITCH}"))?;
        }
        ip_line(&format!("-n {host} link set {SWITCH} up"))?;
        self.pair(CONTROL, CONTROL)?;
        ip_line(&format!("-n {host} address add {HOST_ADDRESS}/24 dev {CONTROL}"))?;
        ip_line(&format!("-n {boxes} address add {BOX_ADDRESS}/24 dev {CONTROL}"))
    }

    /// A veth pair between the two namespaces.
    fn pair(&self, near: &str, far: &str) -> Result<()> {
        let Self { host, boxes, .. } = self;
        ip_line(&format!(
            "link add {near} mtu {MTU} netns {host} type veth peer name {far} mtu {MTU} netns {boxes}"
        ))?;
        ip_line(&format!("-n {host} link set {near} up"))?;
        ip_line(&format!("-n {boxes} link set {far} up"))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if !self.keep {
            for space in [&self.host, &self.boxes] {
                // Also after a signal that ended the demo: this is its cleaning up.
                let _ = Command::new("ip").args(["netns", "delete", space]).output();
            }
        }
    }
}
