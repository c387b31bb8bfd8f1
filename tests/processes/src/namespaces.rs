//! Two network namespaces, one for the host's side and one for the boxes', and what an earlier
//! program left of its own because it was killed.

use crate::commands::output;
use anyhow::{Context, Result};
use std::process::Command;

/// Where iproute2 keeps the names.
const NAMES: &str = "/run/netns";

const MTU: &str = "9000";

/// The namespaces; gone when dropped.
pub struct Namespaces {
    /// Name of the host's.
    pub host: String,
    /// Name of the boxes'.
    pub boxes: String,
    /// Whether they stay when this is dropped.
    pub keep: bool,
}

impl Namespaces {
    /// Makes them, named after a program and its process ID.
    ///
    /// # Errors
    ///
    /// When iproute2 is missing or this is not root.
    pub fn make(program: &str) -> Result<Self> {
        let [host, boxes] = names(program, std::process::id());
        let spaces = Self { host, boxes, keep: false };
        for space in [&spaces.host, &spaces.boxes] {
            ip(&format!("netns add {space}")).context("network namespaces (package iproute2)")?;
            ip(&format!("-n {space} link set lo up"))?;
        }
        Ok(spaces)
    }

    /// A cable, which is a veth pair, from an interface of the host's to one of the boxes'.
    ///
    /// # Errors
    ///
    /// When there is such an interface already.
    pub fn cable(&self, near: &str, far: &str) -> Result<()> {
        let Self { host, boxes, .. } = self;
        ip(&format!(
            "link add {near} mtu {MTU} netns {host} type veth peer name {far} mtu {MTU} netns {boxes}"
        ))?;
        for (space, interface) in [(host, near), (boxes, far)] {
            // No neighbour discovery between the frames.
            ip(&format!("-n {space} link set {interface} addrgenmode none"))?;
            ip(&format!("-n {space} link set {interface} up"))?;
        }
        Ok(())
    }

    /// A cable for IP, with an address of a /24 at each end.
    ///
    /// # Errors
    ///
    /// As [`cable`](Self::cable).
    pub fn cable_for_ip(&self, interface: &str, near: &str, far: &str) -> Result<()> {
        self.cable(interface, interface)?;
        for (space, address) in [(&self.host, near), (&self.boxes, far)] {
            ip(&format!("-n {space} address add {address}/24 dev {interface}"))?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if !self.keep {
            for space in [&self.host, &self.boxes] {
                // Also after a signal that ended this program: this is its cleaning up.
                let _ = Command::new("ip").args(["netns", "delete", space]).output();
            }
        }
    }
}

/// Why no namespaces can be made here, if so.
pub fn why_none() -> Option<String> {
    // SAFETY: geteuid(2) only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return Some("network namespaces need root".into());
    }
    let name = format!("dxpu-try-{}", std::process::id());
    let made = ip(&format!("netns add {name}")).and_then(|()| ip(&format!("netns del {name}")));
    made.err().map(|error| format!("no network namespaces: {error:#}"))
}

/// Runs ip(8) with the words of a line.
///
/// # Errors
///
/// With what it said.
pub fn ip(line: &str) -> Result<()> {
    output(Command::new("ip").args(line.split_whitespace())).map(drop)
}

/// Names of the namespaces of the program with this process ID: the host's and the boxes'.
fn names(program: &str, id: u32) -> [String; 2] {
    ["host", "boxes"].map(|part| format!("{program}-{id}-{part}"))
}

/// The process ID in such a name.
fn owner(program: &str, name: &str) -> Option<u32> {
    let (id, _) = name.strip_prefix(program)?.strip_prefix('-')?.split_once('-')?;
    let id = id.parse().ok()?;
    names(program, id).iter().any(|own| own == name).then_some(id)
}

/// Whether the program runs under this process ID. The system may have given the number to another
/// one since.
fn runs(program: &str, id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == program)
}

/// Removes the namespaces of such programs that are gone, and tells so. Those in which something
/// runs were left on purpose and stay.
pub fn remove_leftovers(program: &str, mut tell: impl FnMut(&str)) {
    let Ok(entries) = std::fs::read_dir(NAMES) else { return };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        if owner(program, &name).is_none_or(|id| runs(program, id)) {
            continue;
        }
        let running = inside(&name);
        if running.is_empty() {
            let removed = Command::new("ip").args(["netns", "delete", &name]).output();
            if removed.is_ok_and(|output| output.status.success()) {
                tell(&format!("removed network namespace {name}: its {program} was killed"));
            }
        } else {
            let ids = running.join(" ");
            tell(&format!(
                "network namespace {name} is in use by what an earlier {program} left running; \
                 `kill {ids}` ends that"
            ));
        }
    }
}

/// Process IDs of what runs in a namespace.
fn inside(name: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "pids", name]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).split_whitespace().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_programs_own_names_are_its() {
        for name in names("dxpu-demo", 4711) {
            assert_eq!(owner("dxpu-demo", &name), Some(4711));
            assert_eq!(owner("dxpu-bench", &name), None);
        }
        for name in ["dxpu-demo-", "dxpu-demo-x-host", "dxpu-demo-7", "dxpu-demo-7-other", "mine"] {
            assert_eq!(owner("dxpu-demo", name), None, "{name}");
        }
        assert_eq!(owner("dxpu-demo", "dxpu-demo-07-host"), None);
    }

    #[test]
    fn another_program_is_not_it() {
        assert!(!runs("dxpu-demo", std::process::id()));
        assert!(!runs("dxpu-demo", 0));
    }
}
