//! Two paths between a host and a box, of which one or the other stops carrying frames.

use crate::harness::{Daemon, NVME, Pool, program, wait_for};
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

/// What the manager was told of a proxy, oldest first.
fn events(pool: &Pool, node: &str) -> Vec<Value> {
    let events = pool.manager(&["events", "--limit", "1000", "--json"]).stdout;
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut events: Vec<Value> = events.filter(|event| event["node"] == node).collect();
    events.sort_by_key(|event| event["sequence"].as_u64());
    events
}

/// Whether a proxy has a path, as the manager was told last; `None` when it was told nothing. A
/// path that comes and goes before a proxy tells of it is one event, so that their numbers say
/// less than their order.
fn has_path(pool: &Pool, node: &str, path: usize) -> Option<bool> {
    let name = format!("path {path}");
    events(pool, node).iter().rev().find_map(|event| {
        let kind = event["kind"].as_str().filter(|kind| kind.starts_with("path-"))?;
        event["detail"].as_str()?.contains(&name).then_some(kind == "path-found")
    })
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

    let both = |path, had: &[Option<bool>]| {
        let all = ["host-1", "box-a"].iter().all(|node| had.contains(&has_path(pool, node, path)));
        all.then_some(())
    };
    // The one by which the link did not come up. That it was found at first is no event.
    wait_for("both ends to find the other path", || {
        let found = |node: &&str| pool.counter(node, "link.paths_found") > 0;
        ["host-1", "box-a"].iter().all(found).then_some(())
    });
    for (path, before) in
        [(1, &[Some(true), None][..]), (0, &[Some(true), None]), (1, &[Some(true)])]
    {
        wait_for("both ends to find the path", || both(path, before));
        cut(relays, path, true);
        pool.round_trip("host-1", &drive, 1 << 20);
        wait_for("both ends to lose the path", || both(path, &[Some(false)]));
        pool.round_trip("host-1", &drive, 1 << 20);
        cut(relays, path, false);
    }
    for node in ["host-1", "box-a"] {
        let down = |event: &Value| event["kind"] == "link-down";
        assert_eq!(events(pool, node).into_iter().find(down), None);
        assert!(pool.counter(node, "link.paths_lost") >= 3, "{node}");
    }
}
