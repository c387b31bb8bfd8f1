//! A network that loses, doubles and reorders, and paths that die for a while: the data stays right,
//! and the kernel hears of no error, because there is none.

use crate::bench::{Bench, LONG, NVME, Wanted};
use anyhow::{Result, ensure};
use processes::relay::{Done, Faults};
use std::time::Duration;
use vm::{Kernel, TALK_BOUND};

/// As bad as the issue wants it, one after the other and all at once.
const WEATHER: [Faults; 4] = [
    Faults { loss: 0.01, duplicate: 0.0, reorder: 0.0, cut: false },
    Faults { loss: 0.0, duplicate: 0.02, reorder: 0.0, cut: false },
    Faults { loss: 0.0, duplicate: 0.0, reorder: 0.02, cut: false },
    Faults { loss: 0.01, duplicate: 0.01, reorder: 0.01, cut: false },
];

fn done(bench: &Bench) -> Done {
    let all = bench.relays.iter().flatten().map(|relay| relay.done());
    all.fold(Done::default(), |sum, one| Done {
        came: sum.came + one.came,
        lost: sum.lost + one.lost,
        doubled: sum.doubled + one.doubled,
        late: sum.late + one.late,
    })
}

fn data_stays_right(kernel: Kernel, seconds: u64) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M"];
    let wanted = Wanted { slots: &slots, relayed: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    bench.lend(0, "box-a/1", NVME)?;
    bench.guest().until("test -b /dev/nvme0n1", TALK_BOUND)?;
    let mark = bench.guest().mark()?;
    let turns = WEATHER.len() as u64 + 2;
    let fio = format!(
        "fio --name=v --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=32M --iodepth=16 \
         --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --loops=1000 \
         --time_based --runtime={}",
        turns * seconds
    );
    let io = bench.guest().spawn(&fio)?;
    let turn = Duration::from_secs(seconds);
    for faults in WEATHER {
        bench.relays.iter().flatten().for_each(|relay| relay.set(faults));
        std::thread::sleep(turn);
    }
    // Each path dies for a while, at both ends; the other one carries everything.
    for path in 0..2 {
        for relays in &bench.relays {
            for (number, relay) in relays.iter().enumerate() {
                relay.set(Faults { cut: number == path, ..Faults::default() });
            }
        }
        std::thread::sleep(turn);
    }
    bench.relays.iter().flatten().for_each(|relay| relay.set(Faults::default()));
    let output = bench.guest().finish(io, LONG)?;
    ensure!(output.status == 0 && output.text.contains("err= 0"), "{}", output.text);
    let did = done(&bench);
    println!("{did:?}");
    ensure!(did.lost > 0 && did.doubled > 0 && did.late > 0, "the weather was fair: {did:?}");
    let said = bench.guest().dmesg_since(mark)?;
    let errors: Vec<_> = said
        .iter()
        .filter(|message| message.is_warning() || message.text.contains("AER"))
        .map(|message| message.text.as_str())
        .collect();
    ensure!(errors.is_empty(), "the kernel heard of it: {errors:#?}");
    Ok(())
}

#[test]
fn data_stays_right_in_bad_weather() {
    data_stays_right(Kernel::V6_12, 3).unwrap();
}

#[test]
#[ignore = "long: minutes of it"]
fn data_stays_right_in_bad_weather_for_minutes() {
    data_stays_right(Kernel::V6_1, 30).unwrap();
}
