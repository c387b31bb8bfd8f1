//! How long placement takes in a pool of 100,000 slots, alone and with the change of the records.
//!
//! `cargo bench -p manager --bench placement`. Beside it, in the same run, what it would cost to
//! look at every slot once. In the end it says whether the targets are held: indexed requests with
//! a median below 100 µs and 99 of 100 below 1 ms, CEL below 50 ms.

use manager::operations::{self, Terms};
use manager::planner::{self, Everybody, PlanRequest, Prepared};
use manager::records::{Tables, Txn};
use manager::spares::{ModelConfig, SparesConfig};
use manager::types::topology::{BoxFacts, BoxKind, HostFacts, Island, Model, Rack, Site};
use manager::types::{
    AllocationId, Amount, DeviceRecord, DeviceState, FunctionAddress, Inventory, NodeName,
    NodeRecord, PciIdentity, PlaceName, Role, SlotAddress, Timestamp, Together,
};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tlp_codec::ids::{SlotFunction, SlotId};

const BOXES: usize = 6250;
const SLOTS: u8 = 16;
const HOSTS: usize = 4000;
const MODELS: usize = 10;
const BOXES_IN_RACK: usize = 10;
const RACKS_AT_SITE: usize = 125;

/// Numbers that look random and are the same in every run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn name(text: String) -> NodeName {
    NodeName::new(text).expect("letters and digits")
}

fn place(text: String) -> PlaceName {
    PlaceName(name(text))
}

/// Every second box has two islands of eight.
fn inventory() -> Inventory {
    let mut inventory = Inventory::default();
    let racks = BOXES.div_ceil(BOXES_IN_RACK);
    for site in 0..racks.div_ceil(RACKS_AT_SITE) {
        inventory.sites.insert(place(format!("s{site}")), Site::default());
    }
    for rack in 0..racks {
        let site = Some(place(format!("s{}", rack / RACKS_AT_SITE)));
        inventory.racks.insert(place(format!("r{rack}")), Rack { site });
    }
    for model in 0..MODELS {
        let memory = Some(Amount(40_000_000_000 * (model as u64 % 4 + 1)));
        let facts = Model { memory, demand: Some(Amount(1_000_000_000)), ..Model::default() };
        inventory.models.insert(format!("gpu{model}"), facts);
    }
    for number in 0..BOXES {
        let nvlink = number % 2 == 1;
        let island = |slots: std::ops::RangeInclusive<u8>| Island {
            slots: slots.collect(),
            rate: Some(Amount(450_000_000_000)),
        };
        let facts = BoxFacts {
            rack: Some(place(format!("r{}", number / BOXES_IN_RACK))),
            kind: if nvlink { BoxKind::Nvlink } else { BoxKind::PcieSwitch },
            capacity: Some(Amount(32_000_000_000)),
            islands: if nvlink { vec![island(1..=8), island(9..=16)] } else { Vec::new() },
            ..BoxFacts::default()
        };
        inventory.boxes.insert(name(format!("box{number}")), facts);
    }
    for number in 0..HOSTS {
        let facts = HostFacts {
            rack: Some(place(format!("r{}", number % racks))),
            capacity: Some(Amount(100_000_000_000)),
            ..HostFacts::default()
        };
        inventory.hosts.insert(name(format!("host{number}")), facts);
    }
    inventory
}

/// The pool, with about half of its slots lent.
fn pool() -> Tables {
    let now = Timestamp::now();
    let mut txn = Txn::new(Tables::default());
    txn.put_inventory(inventory());
    for number in 0..BOXES + HOSTS {
        let (text, role, size) = match number.checked_sub(BOXES) {
            None => (format!("box{number}"), Role::Box, SLOTS),
            Some(host) => (format!("host{host}"), Role::Host, 32),
        };
        let node = txn.new_node_id().expect("there are enough");
        let name = name(text);
        txn.put_node(NodeRecord::new(name, node, role, size, now));
    }
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for number in 0..BOXES {
        // A few boxes have two models.
        let own = numbers.below(MODELS);
        let other = if numbers.below(10) == 0 { numbers.below(MODELS) } else { own };
        for slot in 1..=SLOTS {
            let model = if slot % 2 == 0 { own } else { other };
            txn.put_device(device(number, slot, model, now));
        }
    }
    let (tables, _, _) = txn.finish();
    lend_half(tables, &mut numbers)
}

fn address(number: usize, slot: u8) -> SlotAddress {
    let slot = SlotId::new(slot).expect("not 0");
    SlotAddress::new(name(format!("box{number}")), slot).expect("not 0")
}

fn device(number: usize, slot: u8, model: usize, since: Timestamp) -> DeviceRecord {
    DeviceRecord {
        address: FunctionAddress { slot: address(number, slot), function: SlotFunction::ZERO },
        state: DeviceState::Free,
        model: format!("gpu{model}"),
        pci: PciIdentity {
            vendor: 0x10de,
            device: 0x2330 + model as u16,
            subsystem_vendor: 0x10de,
            subsystem: 0,
            class: 0x03_0200,
            revision: 0xa1,
        },
        serial: (number as u64) << 8 | u64::from(slot),
        bars: [0; 6],
        since,
    }
}

fn lend_half(mut tables: Tables, numbers: &mut Numbers) -> Tables {
    for number in 0..BOXES {
        let mut txn = Txn::new(tables);
        for slot in 1..=SLOTS {
            if numbers.below(SLOTS.into()) < number % usize::from(SLOTS) {
                let host = name(format!("host{}", numbers.below(HOSTS)));
                let mut request = PlanRequest::for_host(host);
                request.wishes.box_name = Some(name(format!("box{number}")));
                request.slot = SlotId::new(slot).ok();
                // A host whose ports or bandwidth are used up leaves the slot free.
                let _ =
                    operations::allocate(&mut txn, &Everybody, &request, Terms::default(), None);
            }
        }
        tables = txn.finish().0;
    }
    tables
}

/// Times of many runs, sorted.
struct Times(Vec<Duration>);

impl Times {
    fn of(runs: usize, mut run: impl FnMut(usize) -> Duration) -> Self {
        for warm in 0..runs.div_ceil(10) {
            run(warm);
        }
        let mut times: Vec<Duration> = (0..runs).map(run).collect();
        times.sort_unstable();
        Self(times)
    }

    fn at(&self, part: f64) -> Duration {
        self.0[((self.0.len() - 1) as f64 * part) as usize]
    }
}

fn timed<R>(run: impl FnOnce() -> R) -> Duration {
    let begun = Instant::now();
    black_box(run());
    begun.elapsed()
}

fn line(what: &str, times: &Times) {
    let us = |part| times.at(part).as_secs_f64() * 1e6;
    println!("{what:58} {:10.1} {:10.1} {:10.1}", us(0.5), us(0.99), us(1.0));
}

/// What is asked for: how it is called, how many, and what is wished besides.
type Ask = (&'static str, u32, fn(&mut PlanRequest));

const INDEXED: [Ask; 9] = [
    ("1 GPU", 1, |_| {}),
    ("1 GPU of a model", 1, |r| r.wishes.model = Some("gpu3".into())),
    ("8 GPUs of a model", 8, |r| r.wishes.model = Some("gpu3".into())),
    ("8 GPUs of a model in one island", 8, |r| {
        r.wishes.model = Some("gpu3".into());
        r.wishes.together = Together::Island;
    }),
    ("4 GPUs of a model, each in another box", 4, |r| {
        r.wishes.model = Some("gpu3".into());
        r.wishes.together = Together::Spread;
    }),
    ("1 GPU near the host", 1, |r| r.wishes.near = true),
    ("1 GPU, memory>=80G,site=s2", 1, |r| r.wishes.selector = selector("memory>=80G,site=s2")),
    ("8 GPUs, memory>=80G,rack!=r3", 8, |r| {
        r.wishes.selector = selector("memory>=80G,rack!=r3");
    }),
    ("1 GPU by its serial number", 1, |r| r.wishes.selector = selector("serial=10006|1a0002")),
];

const CEL: [Ask; 4] = [
    ("CEL: memory / functions > 100000000000", 1, |r| {
        r.wishes.cel = Some("memory / functions > 100000000000".into());
    }),
    ("CEL: kind == 'nvlink' && rack.endsWith('7')", 8, |r| {
        r.wishes.cel = Some("kind == 'nvlink' && rack.endsWith('7')".into());
    }),
    ("CEL: serial.endsWith('e80a') && slot % 2 == 0", 1, |r| {
        r.wishes.cel = Some("serial.endsWith('e80a') && slot % 2 == 0".into());
    }),
    ("CEL: serial.endsWith('e810') && box != site (few)", 1, |r| {
        r.wishes.cel = Some("serial.endsWith('e810') && box != site".into());
    }),
];

fn selector(text: &str) -> manager::types::Selector {
    text.parse().expect("it is one")
}

fn request(ask: &Ask, run: usize) -> PlanRequest {
    let host = name(format!("host{}", run * 7 % HOSTS));
    let mut request = PlanRequest { count: ask.1, ..PlanRequest::for_host(host) };
    ask.2(&mut request);
    request
}

fn measure(tables: &Tables, ask: &Ask, runs: usize) -> Times {
    let times = Times::of(runs, |run| {
        let request = request(ask, run);
        timed(|| planner::plan(&request, tables, &Everybody))
    });
    let fits =
        (0..100).filter(|run| planner::plan(&request(ask, *run), tables, &Everybody).is_ok());
    let what = format!("{} ({} of 100 hosts get it)", ask.0, fits.count());
    line(&what, &times);
    times
}

/// The same when of every model so many are kept as spares.
fn measure_keeping(tables: &Tables, ask: &Ask, keep: u32, runs: usize) -> Times {
    let kept = |model: usize| (format!("gpu{model}"), ModelConfig { keep, ..Default::default() });
    let spares = SparesConfig { models: (0..MODELS).map(kept).collect(), ..Default::default() };
    let times = Times::of(runs, |run| {
        let request = request(ask, run);
        timed(|| {
            let prepared = Prepared::read(request)?.keeping(&spares);
            planner::plan_prepared(&prepared, tables, &Everybody)
        })
    });
    line(&format!("{}, {keep} of each model are kept", ask.0), &times);
    times
}

fn tables_of(txn: Txn) -> Tables {
    txn.finish().0
}

/// An allocation in the records, and its end, as the manager does both; nothing is written.
fn bind_and_release(tables: &Tables, ask: &Ask, runs: usize) {
    let times = Times::of(runs, |run| {
        let request = request(ask, run);
        timed(|| {
            let mut txn = Txn::new(tables.clone());
            let begun =
                operations::allocate(&mut txn, &Everybody, &request, Terms::default(), None);
            let id: Option<AllocationId> = begun.ok().and_then(|operation| operation.allocation);
            let (tables, _, _) = txn.finish();
            let mut txn = Txn::new(tables);
            // A host whose bandwidth is used up gets nothing.
            let Some(id) = id else { return tables_of(txn) };
            let bindings: Vec<_> = txn.bindings_of(id).map(|binding| binding.id).collect();
            bindings.into_iter().for_each(|binding| txn.remove_binding(binding));
            tables_of(txn)
        })
    });
    line(&format!("{}: chosen, recorded, taken out again", ask.0), &times);
}

fn main() {
    let begun = Instant::now();
    let tables = pool();
    let free = tables
        .pool()
        .boxes()
        .flat_map(|entry| &entry.slots)
        .filter(|slot| slot.status == manager::types::SlotStatus::Free);
    println!(
        "{} boxes, {} slots, {} of them free, {} lent; made in {:.1} s\n",
        BOXES,
        BOXES * usize::from(SLOTS),
        free.count(),
        tables.bindings().len(),
        begun.elapsed().as_secs_f64()
    );
    let pool = tables.pool();
    let shapes = pool.shapes(&manager::records::pool::Scope::Pool).map_or(0, |all| all.len());
    println!("{} profiles, {shapes} shapes\n", pool.profiles().count());
    println!("{:58} {:>10} {:>10} {:>10}", "microseconds", "median", "99 %", "most");
    let look = || tables.pool().boxes().flat_map(|entry| &entry.slots).map(|s| s.taken).max();
    line("one look at every slot", &Times::of(200, |_| timed(look)));
    let mut indexed: Vec<Times> = INDEXED.iter().map(|ask| measure(&tables, ask, 2000)).collect();
    indexed.push(measure_keeping(&tables, &INDEXED[1], 100, 2000));
    let cel: Vec<Times> = CEL.iter().map(|ask| measure(&tables, ask, 40)).collect();
    println!();
    bind_and_release(&tables, &INDEXED[1], 1000);
    bind_and_release(&tables, &INDEXED[2], 1000);
    let held = |all: &[Times], part: f64, bound: Duration| all.iter().all(|t| t.at(part) < bound);
    println!();
    for (target, held) in [
        ("indexed: median below 100 us", held(&indexed, 0.5, Duration::from_micros(100))),
        ("indexed: 99 of 100 below 1 ms", held(&indexed, 0.99, Duration::from_millis(1))),
        ("CEL: below 50 ms", held(&cel, 1.0, Duration::from_millis(50))),
    ] {
        println!("{target}: {}", if held { "held" } else { "NOT held" });
    }
}
