//! Network namespaces that a demo left behind because it was killed.

use crate::report::Report;
use std::path::Path;
use std::process::Command;

/// In front of the number of the demo's process, in the names of its namespaces.
const PREFIX: &str = "dxpu-demo-";

/// Where iproute2 keeps the names.
const NAMES: &str = "/run/netns";

/// Names of the namespaces of the demo with this process ID: the host's and the boxes'.
pub(crate) fn namespaces(id: u32) -> [String; 2] {
    ["host", "boxes"].map(|part| format!("{PREFIX}{id}-{part}"))
}

/// The process ID in such a name.
fn demo_of(name: &str) -> Option<u32> {
    let (id, part) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let id = id.parse().ok()?;
    (namespaces(id).iter().any(|own| own == name) && !part.is_empty()).then_some(id)
}

/// Whether a demo runs under this process ID. The system may have given the number to another
/// program since.
fn demo_runs(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "dxpu-demo")
}

/// Removes the namespaces of demos that are gone, and says so. Those in which something runs were
/// left on purpose (`--keep`) and stay.
pub(crate) fn remove(report: &Report) {
    let Ok(entries) = std::fs::read_dir(Path::new(NAMES)) else { return };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let Some(id) = demo_of(&name) else { continue };
        if demo_runs(id) {
            continue;
        }
        let running = inside(&name);
        if running.is_empty() {
            let removed = Command::new("ip").args(["netns", "delete", &name]).output();
            if removed.is_ok_and(|output| output.status.success()) {
                report.step(&format!("removed network namespace {name}: its demo was killed"));
            }
        } else {
            let ids = running.join(" ");
            report.step(&format!(
                "network namespace {name} is in use by what an earlier demo left running; \
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
    fn only_a_demos_names_are_a_demos() {
        for name in namespaces(4711) {
            assert_eq!(demo_of(&name), Some(4711));
        }
        for name in ["dxpu-demo-", "dxpu-demo-x-host", "dxpu-demo-7", "dxpu-demo-7-other", "mine"] {
            assert_eq!(demo_of(name), None, "{name}");
        }
        assert_eq!(demo_of("dxpu-demo-07-host"), None);
    }

    #[test]
    fn another_program_is_no_demo() {
        assert!(!demo_runs(std::process::id()));
        assert!(!demo_runs(0));
    }
}
