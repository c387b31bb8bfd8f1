//! Writes seeds into the corpora: the vectors, the examples of `wire.md`, and what the proxies'
//! own code makes. What is there already stays: `cargo run -p fuzz-targets --example seeds`.

use manager::store::Table;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).map(|n| &digits[2 * n..2 * n + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex digits")).collect()
}

fn read(path: &str) -> String {
    let path: PathBuf = here().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The TLPs of the vectors, right ones and broken ones.
fn vectors() -> Vec<Vec<u8>> {
    let mut tlps = Vec::new();
    for file in ["cocotbext", "captures", "hand", "broken"] {
        let text = read(&format!("../vectors/{file}.json"));
        let vectors: Vec<Value> = serde_json::from_str(&text).expect("vectors are JSON");
        tlps.extend(vectors.iter().filter_map(|vector| vector["hex"].as_str()).map(unhex));
    }
    tlps
}

/// The hex blocks of a document, without the comments: what follows a semicolon or two blanks.
fn examples(document: &str) -> Vec<Vec<u8>> {
    let text = read(document);
    let mut lines = text.lines();
    let mut examples = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("```hex") {
            continue;
        }
        let block = lines.by_ref().take_while(|line| *line != "```");
        let digits: String = block
            .flat_map(|line| line.split(';').next().unwrap_or("").split("  ").take(1))
            .flat_map(str::split_whitespace)
            .collect();
        examples.push(unhex(&digits));
    }
    examples
}

/// Writes a seed under a name that its bytes decide.
fn seed(target: &str, bytes: &[u8]) {
    let folder = here().join("corpus").join(target);
    std::fs::create_dir_all(&folder).expect("the corpus can be written");
    let name = format!("seed-{:08x}", tlp_codec::crc::tlp(bytes));
    std::fs::write(folder.join(name), bytes).expect("the corpus can be written");
}

/// Captures of frames: what is before a frame in Ethernet, in a file of one packet.
fn captures(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let capture = |frame: &Vec<u8>| {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            file.extend(word.to_le_bytes());
        }
        let length = 14 + frame.len() as u32;
        for word in [0, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
        file.extend(frame);
        file
    };
    frames.iter().map(capture).collect()
}

/// What the `tlp` command prints of a TLP, and the hex.
fn lines(tlp: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = tlp.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut lines = vec![[&[0], hex.as_bytes()].concat(), [&[2], hex.as_bytes()].concat()];
    for json in [false, true] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let input = std::io::Cursor::new(hex.clone().into_bytes());
        if tlp_cli::decode(input, json, false, &mut out, &mut err).is_ok() && !out.is_empty() {
            lines.push([&[1], &out[..]].concat());
        }
    }
    lines
}

/// A request to each address of the manager's API, with a body that fits some of them.
fn requests() -> Vec<Vec<u8>> {
    let text = read("../../manager/openapi.json");
    let description: Value = serde_json::from_str(&text).expect("it is JSON");
    let bodies = [
        "",
        r#"{"host":"host1"}"#,
        r#"{"host":"host1","count":2,"selector":"model=nvme","together":"box","lease_ms":60000}"#,
        r#"{"place":"box1/1","reason":"a reason"}"#,
        r#"{"what":"alloc-1","grace_ms":1000,"reason":"a reason"}"#,
        r#"{"racks":{"r1":{}},"boxes":{"box1":{"rack":"r1"}}}"#,
    ];
    let values = [("{name}", "box1"), ("{slot}", "1"), ("{node}", "host1"), ("{id}", "1")];
    let mut requests = Vec::new();
    for (path, methods) in description["paths"].as_object().expect("it has paths") {
        let path =
            values.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
        for method in methods.as_object().expect("they have methods").keys() {
            let line = format!("{} {path}", method.to_uppercase());
            for body in bodies {
                let request = format!("{line}\ncontent-type: application/json\n\n{body}");
                requests.push(request.into_bytes());
                if method == "get" {
                    break;
                }
            }
        }
    }
    for line in [
        "GET /v1/slots?status=free&model=nvme&limit=1&box=box1",
        "GET /v1/events?since=0&limit=1&wait_ms=1000",
        "GET /v1/operations?running=true\nif-none-match: \"x\"",
        "GET /v1/boxes/%62ox1/slots/1\naccept: text/plain",
        "PATCH /v1/allocations\nx-dxpu-actor: somebody",
        "DELETE /v1/holds?place=box1/1\nidempotency-key: k",
    ] {
        requests.push(line.as_bytes().to_vec());
    }
    requests
}

/// Records of the manager's store, each under its key.
fn records() -> Vec<Vec<u8>> {
    let at = "2026-11-22T11:38:56.402Z";
    let number = |number: u64| number.to_be_bytes().to_vec();
    let function = json!({ "slot": "box1/1", "function": 0 });
    let operation = json!({
        "id": "op-1", "what": { "kind": "allocate", "host": "host1", "slots": ["box1/1"] },
        "state": "succeeded", "allocation": "alloc-1", "warnings": [], "started": at, "ended": at,
        "steps": [{ "name": "bind-slot", "binding": "bind-1", "target": "box1/1", "state": "done",
            "changed": at }],
        "client_key": "k",
    });
    let pci = json!({ "vendor": 6966, "device": 4096, "subsystem_vendor": 6966, "subsystem": 1,
        "class": 67586, "revision": 1 });
    let counters = |schema: u32| {
        json!({ "schema": schema, "term": 1, "highest_term_seen": 1,
        "generation": 0, "next_node": 3, "next_allocation": 2, "next_binding": 2,
        "next_operation": 2, "next_event": 2 })
    };
    let mut of_version_2 = operation.clone();
    of_version_2["client_request"] = "{}".into();
    let node = |name: &str, role: &str, node: u16| {
        json!({ "name": name, "node": node,
        "role": role, "size": 2, "first_seen": at, "last_connected": at })
    };
    let lent = [
        (Table::Nodes, b"box1".to_vec(), node("box1", "box", 1)),
        (Table::Nodes, b"host1".to_vec(), node("host1", "host", 2)),
        (
            Table::Devices,
            b"box1/1.0".to_vec(),
            json!({ "address": function, "state": "bound",
            "model": "nvme", "pci": pci, "serial": 7, "bars": [16384, 0, 0, 0, 0, 0],
            "since": at }),
        ),
        (Table::Epochs, b"box1/1.0".to_vec(), json!({ "address": function, "highest": 1 })),
        (
            Table::Allocations,
            number(1),
            json!({ "id": "alloc-1", "host": "host1",
            "reason": "training", "since": at, "link": { "paths": [], "weight": 2 } }),
        ),
        (
            Table::Bindings,
            number(1),
            json!({ "id": "bind-1", "allocation": "alloc-1",
            "slot": "box1/1", "functions": [{ "function": 0, "epoch": 1 }], "host": "host1",
            "port": 0, "phase": "configured", "desired": "bound", "box_incarnation": 1,
            "host_incarnation": 1, "operation": null, "trouble": null, "since": at,
            "changed": at }),
        ),
        (Table::Operations, number(1), operation),
    ];
    let others = [
        (Table::Meta, b"meta".to_vec(), counters(3)),
        (
            Table::Events,
            number(1),
            json!({ "sequence": 1, "at": at, "kind": "manager-started",
            "detail": "it serves" }),
        ),
        (
            Table::Holds,
            b"box1/2".to_vec(),
            json!({ "place": "box1/2", "kind": "maintenance",
            "reason": "cable", "since": at }),
        ),
        (
            Table::Health,
            b"box1/1".to_vec(),
            json!({ "subject": { "kind": "slot", "slot": "box1/1" }, "state": "suspect",
            "reason": "errors", "since": at }),
        ),
        (Table::Models, b"nvme".to_vec(), json!({ "model": "nvme", "failures": 1, "since": at })),
        (
            Table::Audit,
            number(1),
            json!({ "sequence": 1, "at": at, "peer": "127.0.0.1:7",
            "method": "POST", "path": "/v1/holds" }),
        ),
        (
            Table::Erasures,
            number(1),
            json!({ "id": "erase-1", "slot": "box1/1", "functions": [],
            "model": "nvme", "rule": {}, "state": "done", "permille": 1000,
            "detail": "", "since": at }),
        ),
        (
            Table::Inventory,
            b"inventory".to_vec(),
            json!({ "revision": 1, "since": at,
            "inventory": { "racks": { "r1": {} }, "boxes": { "box1": { "rack": "r1" } } } }),
        ),
        (
            Table::Keys,
            b"k".to_vec(),
            json!({ "key": "k", "operation": "op-1", "digest": "d",
            "since": at }),
        ),
        (Table::Forgotten, vec![0, 9], json!({ "node": 9, "name": "box9" })),
    ];
    let earlier = [
        (Table::Meta, b"meta".to_vec(), counters(2)),
        (Table::Operations, number(1), of_version_2),
    ];
    let record = |(table, key, value): &(Table, Vec<u8>, Value)| {
        fuzz_targets::records::encode(*table, key, value.to_string().as_bytes())
    };
    let all = |records: &[_]| records.iter().flat_map(record).collect();
    let mut seeds = vec![all(&lent), all(&others), all(&earlier)];
    seeds.extend(lent.iter().chain(&others).map(record));
    seeds
}

fn main() {
    records().iter().for_each(|records| seed("records", records));
    let requests = requests();
    requests.iter().for_each(|request| seed("api", request));
    for three in requests.chunks(3) {
        seed("api", &three.join(&0));
    }
    for example in examples("../../proxy-fw/core/docs/control.md") {
        let Some(message) = example.get(4..) else { continue };
        let length = (message.len() as u16).to_le_bytes();
        for how in [0, 2, 4, 6, 1] {
            // The message as it is and as an answer, before and after the tables were read.
            let message = [&length[..], message].concat();
            let read = [4, 0, 4, 1, 4, 2];
            let messages = [&[1][..], &message, &read, &[5], &message, &[2, 0xe8, 3, 7], &message];
            seed("manager_control", &[&[how][..], &messages.concat()].concat());
        }
    }
    for tlp in vectors() {
        lines(&tlp).iter().for_each(|line| seed("cli", line));
    }
    for tlp in vectors() {
        // A hello, and the TLP in a record.
        let length = 4 + tlp.len().min(251);
        seed("socket", &[&[0xe0, 0, length as u8, 0, 0, 0, 0], &tlp[..length - 4]].concat());
    }
    for capture in captures(&examples("../../tlp-codec/docs/wire.md")) {
        seed("cli", &[&[6], &capture[..]].concat());
    }
    for tlp in vectors() {
        seed("tlp", &tlp);
    }
    for example in examples("../../tlp-codec/docs/wire.md") {
        seed("frame", &[&[0], &example[..]].concat());
        seed("frame", &[&[3], &example[..]].concat());
    }
    for command in 0..20 {
        // After a greeting: the command in each of its ways, and answers to what it brings.
        let ways = (0..5).flat_map(|way| [way << 5 | command, 0, 1 << way, 2, 3, 4, 5, 0x91]);
        seed("vfio_user", &[&[0][..], &ways.collect::<Vec<u8>>()].concat());
    }
    for image in fuzz_targets::image::IMAGES.iter() {
        for made_right in [0, 1] {
            seed("image", &[&[made_right], &image[..]].concat());
            seed("image", &[&[made_right], &image[..300]].concat());
        }
    }
    for example in examples("../../proxy-fw/image/docs/image.md") {
        seed("image", &[&[0], &example[..]].concat());
        // The record in each block, the boot, and an update that is cut here and gone on with.
        for (place, cut) in [(0, 1), (15, 101), (16, 801), (31, 2001), (3, 0), (20, 5001)] {
            let [low, high] = u16::to_le_bytes(cut);
            let record = [&[1, place, 9, 0, 0, 0], &example[..16]].concat();
            let update = [3, 4, low, high, 3, 4, 0, 0, 3, 6, 3, 13, low, high, 3, 3, 3, 3, 7, 3];
            seed("boot", &[&[place], &record[..], &update].concat());
            seed("boot", &[&[place], &update[..]].concat());
        }
    }
    for example in examples("../../proxy-fw/core/docs/control.md") {
        for which in 0..5 {
            seed("control", &[&[which], &example[..]].concat());
        }
    }
}
