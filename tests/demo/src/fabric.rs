//! Where the frames travel: UDP on loopback, or raw Ethernet between two network namespaces.

use crate::process;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// The fabric under the demo.
pub(crate) enum Fabric {
    /// UDP on loopback; no privileges needed.
    Udp,
    /// Raw Ethernet on a veth pair between two namespaces.
    Ethernet(Namespaces),
}

/// Two network namespaces with a veth pair between them; gone when dropped.
pub(crate) struct Namespaces {
    host: String,
    boxes: String,
    keep: bool,
}

const HOST_INTERFACE: &str = "dxpu-host";
const BOX_INTERFACE: &str = "dxpu-box";
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
        let id = std::process::id();
        let spaces = Namespaces {
            host: format!("dxpu-host-{id}"),
            boxes: format!("dxpu-box-{id}"),
            keep: false,
        };
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
            Self::Ethernet(_) => format!("eth:{HOST_INTERFACE}"),
        }
    }

    /// Fabric setting of the box proxies.
    pub(crate) fn box_setting(&self) -> String {
        match self {
            Self::Udp => "udp:127.0.0.1:0".into(),
            Self::Ethernet(_) => format!("eth:{BOX_INTERFACE}"),
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
            Self::Ethernet(_) => "raw Ethernet on veth between two network namespaces",
        }
    }

    /// Leaves the namespaces when dropped.
    pub(crate) fn keep(&mut self) {
        if let Self::Ethernet(spaces) = self {
            spaces.keep = true;
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    process::output(Command::new("ip").args(arguments)).map(drop)
}

impl Namespaces {
    fn make(&self) -> Result<()> {
        ip(&["netns", "add", &self.host])?;
        ip(&["netns", "add", &self.boxes])?;
        ip(&[
            "link",
            "add",
            HOST_INTERFACE,
            "mtu",
            MTU,
            "netns",
            &self.host,
            "type",
            "veth",
            "peer",
            "name",
            BOX_INTERFACE,
            "mtu",
            MTU,
            "netns",
            &self.boxes,
        ])?;
        for (space, interface, address) in
            [(&self.host, HOST_INTERFACE, HOST_ADDRESS), (&self.boxes, BOX_INTERFACE, BOX_ADDRESS)]
        {
            let address = format!("{address}/24");
            ip(&["-n", space, "address", "add", &address, "dev", interface])?;
            ip(&["-n", space, "link", "set", "lo", "up"])?;
            ip(&["-n", space, "link", "set", interface, "up"])?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if !self.keep {
            let _ = ip(&["netns", "delete", &self.host]);
            let _ = ip(&["netns", "delete", &self.boxes]);
        }
    }
}
