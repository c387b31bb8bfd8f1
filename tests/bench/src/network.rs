//! Two network namespaces and the cables between them: one for each path, and one for control.

use crate::floor::By;
use crate::process::number;
use anyhow::{Context, Result, ensure};
use processes::namespaces::{Namespaces, ip};
use processes::output;
use proxy_net::{Port, RawOptions, RawPort, UdpOptions, UdpPort};
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;

/// This program's name.
pub(crate) const PROGRAM: &str = "dxpu-bench";
/// Paths between host and box.
pub(crate) const PATHS: usize = 2;
/// The interfaces at the host's end, by path.
pub(crate) const HOST: [&str; PATHS] = ["host0", "host1"];
/// The interfaces at the box's end.
pub(crate) const BOX: [&str; PATHS] = ["box0", "box1"];
/// Where the manager is, at the host's end of the cable for control.
pub(crate) const MANAGER_ADDRESS: &str = "10.214.0.1";
const BOX_CONTROL_ADDRESS: &str = "10.214.0.2";
/// Where the host's and the box's proxies are on the first path, where frames travel over UDP.
pub(crate) const HOST_ADDRESS: &str = "10.214.1.1";
pub(crate) const BOX_ADDRESS: &str = "10.214.1.2";
/// The floors' EtherType, so that proxies do not get their frames: the second of the two for local
/// experiments (IEEE 802-2014, clause 9.2).
const BARE_ETHERTYPE: u16 = 0x88B6;

/// The namespaces and their cables; gone when dropped.
pub(crate) struct Network(Namespaces);

impl std::ops::Deref for Network {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.0
    }
}

impl Network {
    pub(crate) fn make() -> Result<Self> {
        let spaces = Namespaces::make(PROGRAM)?;
        for (near, far) in HOST.into_iter().zip(BOX) {
            spaces.cable(near, far)?;
        }
        for (space, interface, address) in
            [(&spaces.host, HOST[0], HOST_ADDRESS), (&spaces.boxes, BOX[0], BOX_ADDRESS)]
        {
            ip(&format!("-n {space} address add {address}/24 dev {interface}"))?;
        }
        spaces.cable_for_ip("control", MANAGER_ADDRESS, BOX_CONTROL_ADDRESS)?;
        Ok(Self(spaces))
    }

    /// Does something in one of the namespaces. What is opened there stays there.
    pub(crate) fn within<T: Send>(
        space: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let file = File::open(format!("/run/netns/{space}"))?;
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                // SAFETY: setns(2) takes a descriptor, which is open, and changes this thread only.
                let done = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
                ensure!(done == 0, "setns: {}", std::io::Error::last_os_error());
                work()
            });
            worker.join().expect("work in a namespace does not panic")
        })
    }

    /// Frames that the host's end of each path has carried, there and back. Quick, so that it can
    /// be asked just before something is done.
    pub(crate) fn carried(&self) -> Result<[u64; PATHS]> {
        // Of the thread's own namespace; /sys would be that of the mount.
        let table =
            Self::within(&self.host, || Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?))?;
        let mut carried = [0; PATHS];
        for (name, count) in HOST.into_iter().zip(&mut carried) {
            *count = frames_of(&table, name).with_context(|| format!("no counts of {name}"))?;
        }
        Ok(carried)
    }

    /// Opens the ports for bare frames at both ends of the first path.
    pub(crate) fn bare_ports(&self, by: By) -> Result<(Box<dyn Port>, Box<dyn Port>)> {
        let open = |interface: &str, address: &str| -> Result<Box<dyn Port>> {
            if by == By::Udp {
                let bind = SocketAddr::new(address.parse()?, 0);
                return Ok(Box::new(UdpPort::open(&UdpOptions::new(bind))?));
            }
            let (ethertype, ring) = (BARE_ETHERTYPE, by == By::Rings);
            let options = RawOptions { ethertype, ring, ..RawOptions::new(interface) };
            Ok(Box::new(RawPort::open(&options)?))
        };
        let near = Self::within(&self.host, || open(HOST[0], HOST_ADDRESS))?;
        Ok((near, Self::within(&self.boxes, || open(BOX[0], BOX_ADDRESS))?))
    }
}

/// Frames received and sent by an interface, of a table as proc(5) has it (`/proc/net/dev`).
fn frames_of(table: &str, interface: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == interface).then_some(counts)
    })?;
    let count = |place: usize| line.split_whitespace().nth(place)?.parse::<u64>().ok();
    Some(count(1)? + count(9)?)
}

/// What the host's end of the first path has counted.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) sent: f64,
    pub(crate) sent_bytes: f64,
    pub(crate) received: f64,
}

impl Traffic {
    pub(crate) fn of(network: &Network) -> Result<Self> {
        let words = ["-n", &network.host, "-j", "-s", "link", "show", HOST[0]];
        let links: Value = serde_json::from_str(&output(Command::new("ip").args(words))?)?;
        let count = |name: &str| number(&links, &format!("/0/stats64/{name}"));
        Ok(Self {
            sent: count("tx/packets")?,
            sent_bytes: count("tx/bytes")?,
            received: count("rx/packets")?,
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            sent_bytes: self.sent_bytes - before.sent_bytes,
            received: self.received - before.received,
        }
    }

    /// Mean length of the frames sent, without their Ethernet headers, in bytes.
    pub(crate) fn frame_length(self) -> Result<usize> {
        let mean = (self.sent > 0.0).then(|| self.sent_bytes / self.sent);
        Ok((mean.context("no frames were sent")? as usize).saturating_sub(14).max(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_both_ways_are_read_from_the_kernels_table() {
        let table = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo:     100       7    0    0    0     0          0         0      100       7    0
 host0: 9000000    3000    1    2    0     0          0         0  7000000    4000    0
host01:       5       1    0    0    0     0          0         0        6       1    0
";
        assert_eq!(frames_of(table, "host0"), Some(7000));
        assert_eq!(frames_of(table, "lo"), Some(14));
        assert_eq!(frames_of(table, "host1"), None);
    }
}
