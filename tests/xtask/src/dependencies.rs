//! Which crate depends on which: the house plan's table of rooms, checked from `cargo metadata`.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand, Package, semver::Version};

use crate::report::Done;
use crate::tools::{cargo, output, root};

/// One crate of the workspace and the crates of the workspace that it may depend on.
struct Room {
    name: &'static str,
    kind: Kind,
    may_use: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Used by others; also by any crate's tests.
    Library,
    /// A program's crate: no other one, and nobody but whole-system tests, builds on it.
    Program,
    /// May use everything; nothing may use it.
    Tests,
}

const fn library(name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, kind: Kind::Library, may_use }
}

const fn program(name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, kind: Kind::Program, may_use }
}

const fn tests(name: &'static str) -> Room {
    Room { name, kind: Kind::Tests, may_use: &[] }
}

/// Every crate of the workspace. Dependencies point one way: codec ← core ← daemons. A new crate
/// is entered here, and with it the decision what it may depend on.
const ROOMS: &[Room] = &[
    library("tlp-codec", &[]),
    program("tlp-cli", &["tlp-codec"]),
    library("proxy-core", &["tlp-codec"]),
    library("proxy-net", &["tlp-codec"]),
    library("proxy-daemon", &["tlp-codec", "proxy-core", "proxy-net"]),
    library("soc", &["tlp-codec", "proxy-core", "card-image", "card-regs"]),
    // Programs for a card, and where things are on it, which tests compare.
    library("board-common", &[]),
    library("board-qemu-virt", &["tlp-codec", "proxy-core", "soc", "card-image", "board-common"]),
    library("board-litex", &["proxy-core", "soc", "card-image", "card-regs", "board-common"]),
    library("host-model", &["tlp-codec", "nvme-driver"]),
    library("nvme-driver", &["tlp-codec"]),
    library("vmd-adapter", &["tlp-codec", "proxy-core"]),
    library("vfio-user-server", &[]),
    library("device-models", &["tlp-codec"]),
    library("processes", &[]),
    library("emulated-card", &["board-qemu-virt", "card-image", "nor-model", "soc", "processes"]),
    library("nor-model", &[]),
    library("sim-card", &["card-regs", "nor-model"]),
    library("card-image", &[]),
    library("flash-algorithm", &["card-regs"]),
    library("remote-bitbang", &[]),
    library("dxpu-flash", &["card-image", "card-regs", "flash-algorithm", "remote-bitbang", "soc"]),
    program(
        "host-proxy",
        &[
            "tlp-codec",
            "proxy-core",
            "proxy-net",
            "proxy-daemon",
            "host-model",
            "nvme-driver",
            "vfio-user-server",
            "vmd-adapter",
        ],
    ),
    program(
        "box-proxy",
        &["tlp-codec", "proxy-core", "proxy-net", "proxy-daemon", "device-models"],
    ),
    library("card-regs", &[]),
    library("manager-client", &["tlp-codec", "proxy-core", "card-image"]),
    program("manager", &["tlp-codec", "proxy-core", "card-image", "manager-client"]),
    library("cuda-hooks", &[]),
    library("perf-shim", &["cuda-hooks", "perf-core"]),
    library("perf-core", &[]),
    library("perf-cuda", &["perf-core"]),
    program("perf-model", &["perf-core", "perf-cuda"]),
    tests("bench"),
    tests("card"),
    tests("cuda-stand-in"),
    tests("cuda-tests"),
    tests("demo"),
    tests("direct"),
    tests("sim"),
    tests("fuzz-targets"),
    tests("pool-scale"),
    tests("protocol-model"),
    tests("guest-tools"),
    tests("system-tests"),
    tests("vm"),
    tests("xtask"),
];

/// One crate that depends on another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    /// Only for its tests, examples and benchmarks.
    dev: bool,
}

/// Checks the workspace against the table.
pub(crate) fn check() -> Result<Done> {
    let (members, edges) = workspace()?;
    let mut wrong = violations(&members, &edges);
    wrong.extend(too_new()?);
    for edge in edges.iter().filter(|edge| edge.dev) {
        println!("in tests only: {} uses {}", edge.from, edge.to);
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    let tests_only = edges.iter().filter(|edge| edge.dev).count();
    Ok(Done::with(format!(
        "{} crates, {} dependencies between them, {tests_only} more in tests only",
        members.len(),
        edges.len() - tests_only,
    )))
}

/// The workspace's crates, and which depends on which.
fn workspace() -> Result<(Vec<String>, Vec<Edge>)> {
    let metadata = MetadataCommand::new()
        .cargo_path(cargo(&[]).get_program())
        .current_dir(root())
        .no_deps()
        .exec()
        .context("`cargo metadata` failed")?;
    let members: Vec<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let mut edges = Vec::new();
    for package in &metadata.packages {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some())
        {
            let edge = Edge {
                from: package.name.to_string(),
                to: dependency.name.clone(),
                dev: dependency.kind == DependencyKind::Development,
            };
            if edge.from != edge.to && !edges.contains(&edge) {
                edges.push(edge);
            }
        }
    }
    // What is a normal dependency already says nothing new as one of the tests.
    let normal: Vec<Edge> = edges.iter().filter(|edge| !edge.dev).cloned().collect();
    edges
        .retain(|edge| !edge.dev || !normal.iter().any(|n| n.from == edge.from && n.to == edge.to));
    Ok((members, edges))
}

/// Packages that are built here and ask for a later Rust than the workspace says that it takes, each
/// in words.
fn too_new() -> Result<Vec<String>> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let about = output(Command::new(rustc).arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` names no host")?;
    let metadata = MetadataCommand::new()
        .cargo_path(cargo(&[]).get_program())
        .current_dir(root())
        .other_options(["--locked", "--filter-platform", host].map(String::from))
        .exec()
        .context("`cargo metadata` failed")?;
    let own = env!("CARGO_PKG_RUST_VERSION");
    let own = Version::parse(&format!("{own}.0")).context("rust-version in Cargo.toml")?;
    let needs = |package: &Package| package.rust_version.clone().filter(|version| *version > own);
    let too_new = metadata.packages.iter().filter_map(|package| Some((package, needs(package)?)));
    let said = |(package, version): (&Package, _)| {
        format!("{} needs Rust {version}: say so in Cargo.toml and README.md", package.name)
    };
    Ok(too_new.map(said).collect())
}

/// What does not agree with [`ROOMS`], each in words.
fn violations(members: &[String], edges: &[Edge]) -> Vec<String> {
    let rooms: BTreeMap<&str, &Room> = ROOMS.iter().map(|room| (room.name, room)).collect();
    let mut wrong = Vec::new();
    for member in members.iter().filter(|member| !rooms.contains_key(member.as_str())) {
        wrong.push(format!(
            "{member} is not in the table in tests/xtask/src/dependencies.rs: enter it"
        ));
    }
    for Edge { from, to, dev } in edges {
        let (Some(user), Some(used)) = (rooms.get(from.as_str()), rooms.get(to.as_str())) else {
            continue;
        };
        let allowed = match (user.kind, used.kind) {
            (_, Kind::Tests) => false,
            (Kind::Tests, _) => true,
            (_, Kind::Library) if *dev => true,
            _ => user.may_use.contains(&to.as_str()),
        };
        if !allowed {
            let how = if *dev { "in its tests" } else { "" };
            wrong.push(format!("{from} must not depend on {to} {how}").trim_end().to_owned());
        }
    }
    wrong
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn edge(from: &str, to: &str, dev: bool) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned(), dev }
    }

    #[test]
    fn the_table_itself_points_one_way() {
        // With each crate's dependencies removed first, everything can be removed.
        let mut left: Vec<&Room> = ROOMS.iter().collect();
        while !left.is_empty() {
            let names: Vec<&str> = left.iter().map(|room| room.name).collect();
            let before = left.len();
            left.retain(|room| room.may_use.iter().any(|used| names.contains(used)));
            assert!(left.len() < before, "a circle among {names:?}");
        }
        for room in ROOMS {
            for used in room.may_use {
                let used =
                    ROOMS.iter().find(|other| other.name == *used).expect("it is in the table");
                assert_eq!(used.kind, Kind::Library, "{} uses {}", room.name, used.name);
            }
        }
    }

    #[test]
    fn wrong_directions_are_found() {
        for (from, to, dev) in [
            ("tlp-codec", "proxy-core", false),
            ("proxy-core", "proxy-net", false),
            ("host-proxy", "box-proxy", false),
            ("host-proxy", "box-proxy", true),
            ("manager", "host-proxy", true),
            ("proxy-net", "system-tests", true),
            ("system-tests", "xtask", false),
        ] {
            assert_eq!(violations(&[], &[edge(from, to, dev)]).len(), 1, "{from} {to} {dev}");
        }
        for (from, to, dev) in [
            ("proxy-core", "tlp-codec", false),
            ("proxy-core", "proxy-net", true),
            ("system-tests", "box-proxy", false),
            ("host-model", "device-models", true),
        ] {
            assert_eq!(violations(&[], &[edge(from, to, dev)]), [""; 0], "{from} {to} {dev}");
        }
        assert_eq!(violations(&["newcomer".to_owned()], &[]).len(), 1);
    }

    #[test]
    fn this_workspace_is_read() {
        let (members, edges) = workspace().unwrap();
        assert!(members.contains(&"xtask".to_owned()));
        assert!(edges.contains(&edge("proxy-core", "tlp-codec", false)));
        assert!(!edges.iter().any(|edge| edge.to == "serde"), "only the workspace's own crates");
    }
}
