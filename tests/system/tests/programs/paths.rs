//! Two paths between a host and a box, of which one or the other stops carrying frames.

use crate::harness::{Daemon, NVME, Pool, program, wait_event, wait_for};
use processes::relay::{Faults, Relay};
use serde_json::Value;

/// A path that carries nothing, both ways.
fn cut(relays: &[Relay; 4], path: usize, cut: bool) {
    for end in 0..2 {
        relays[end * 2 + path].set(Faults { cut, ..Faults::default() });
    }
}

fn proxy(pool: &Pool, kind: &str, name: &str, ports: &[Relay], more: &[&str]) -> Daemon {
    let list = |each: fn(&Relay) -> String| ports.iter().map(each).collect::<Vec<_>>().join(",");
    let mut command = program(kind);
    command.args(["--name", name, "--manager", &pool.control]);
    command.args(["--fabric", &list(|relay| format!("udp:{}", relay.behind()))]);
    command
        .args(["--advertise", &list(|relay| relay.public().expect("an address").to_string())])
        .args(more);
    Daemon::start(&mut command, &pool.path(&format!("{name}.log")))
}

/// How often the manager was told something of a proxy's path.
fn told(pool: &Pool, kind: &str, node: &str, path: &str) -> usize {
    let events = pool.manager(&["events", "--limit", "1000", "--json"]).stdout;
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let about = |event: &Value| {
        event["kind"] == kind
            && event["node"] == node
            && event["detail"].as_str().is_some_and(|detail| detail.contains(path))
    };
    events.filter(about).count()
}

#[test]
fn a_device_goes_on_by_the_path_that_is_left() {
    let pool = Pool::new();
    let relays: [Relay; 4] = std::array::from_fn(|n| Relay::start(n as u64).expect("a relay"));
    lose_each_path(&pool, &relays);
}

fn lose_each_path(pool: &Pool, relays: &[Relay; 4]) {
    let socket = pool.argument("host-1.sock");
    let host = ["--model-host", &socket, "--ports", "2", "--model-button-ms", "100"];
    let _host = proxy(pool, "host-proxy", "host-1", &relays[..2], &host);
    let drive = pool.drive(1, "drive.img");
    let _box = proxy(pool, "box-proxy", "box-a", &relays[2..], &["--slot", &drive]);
    pool.wait_ready(2);
    let wish = ["--paths", "1", "--weight", "3", "--limit", "400M", "--guarantee", "1M"];
    let lend = ["allocate", "--host", "host-1", "--box", "box-a", "--slot", "1"];
    let lent = pool.manager_json(&[&lend[..], &wish[..]].concat());
    let used = serde_json::json!({
        "paths": [1], "weight": 3, "limit": 400_000_000, "guarantee": 1_000_000
    });
    assert_eq!(lent["link"], used, "{lent}");
    let ends = ["/hosts/0/entries/0/paths", "/boxes/0/entries/0/paths"];
    let table = pool.manager_json(&["tables"]);
    for end in ends {
        assert_eq!(table.pointer(end), Some(&serde_json::json!([1])), "{table}");
    }
    pool.manager_json(&["release", "--force", "box-a/1"]);
    pool.allocate("host-1", "box-a/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let table = pool.manager_json(&["tables"]);
    assert_eq!(
        table.pointer("/hosts/0/entries/0/paths"),
        Some(&serde_json::json!([0, 1])),
        "{table}"
    );

    for (turn, path) in [(1, 1), (1, 0), (2, 1)] {
        let name = format!("path {path}");
        wait_for("both ends to find the path", || {
            let found = ["host-1", "box-a"].iter().all(|node| {
                let back = told(pool, "path-found", node, &name);
                back > 0 && back >= told(pool, "path-lost", node, &name)
                    || path == 0 && turn == 1 && told(pool, "path-lost", node, &name) == 0
            });
            found.then_some(())
        });
        cut(relays, path, true);
        pool.round_trip("host-1", &drive, 1 << 20);
        wait_event(pool, "path-lost", "box-a");
        wait_for("both ends to lose the path", || {
            let lost =
                ["host-1", "box-a"].iter().all(|n| told(pool, "path-lost", n, &name) >= turn);
            lost.then_some(())
        });
        pool.round_trip("host-1", &drive, 1 << 20);
        cut(relays, path, false);
    }
    for node in ["host-1", "box-a"] {
        assert_eq!(told(pool, "link-down", node, ""), 0);
        assert!(pool.counter(node, "link.paths_lost") >= 3, "{node}");
    }
}
