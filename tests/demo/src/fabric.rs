//! Where the frames travel: UDP on loopback, or raw Ethernet between two network namespaces.

use anyhow::{Context, Result, bail};
use processes::namespaces::{Namespaces, ip};

/// The fabric under the demo.
pub(crate) enum Fabric {
    /// UDP on loopback; no privileges needed.
    Udp,
    /// Raw Ethernet between two namespaces, one for the host and the manager and one for the boxes.
    /// Each box has a cable of its own, so that no frame wakes the other; their near ends are ports
    /// of a bridge, which is the Ethernet switch, and the bridge is the host's interface. What
    /// proxies and manager say to each other travels on a third cable.
    Ethernet(Namespaces),
}

/// The boxes, and the far ends of their pairs.
const BOX_INTERFACES: [(&str, &str); 2] = [("box-a", "dxpu-box-a"), ("box-b", "dxpu-box-b")];
const SWITCH: &str = "dxpu-host";
const CONTROL: &str = "dxpu-control";
const HOST_ADDRESS: &str = "10.213.0.1";
const BOX_ADDRESS: &str = "10.213.0.2";

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
        let spaces = Namespaces::make("dxpu-demo")?;
        let host = &spaces.host;
        ip(&format!("-n {host} link add {SWITCH} mtu 9000 type bridge"))?;
        for (name, interface) in BOX_INTERFACES {
            spaces.cable(&format!("to-{name}"), interface)?;
            ip(&format!("-n {host} link set to-{name} master {SWITCH}"))?;
        }
        ip(&format!("-n {host} link set {SWITCH} up"))?;
        spaces.cable_for_ip(CONTROL, HOST_ADDRESS, BOX_ADDRESS)?;
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
