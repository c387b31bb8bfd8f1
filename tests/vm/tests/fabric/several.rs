//! Several devices at once, from several boxes, one after the other and in a burst.

use crate::lending::verify;
use crate::scene::{PLUG_BOUND, Plan, SMALL, Scene, play};
use anyhow::{Context, Result, ensure};
use vm::{Kernel, Verify};

/// A drive, and an accelerator with more memory than a port has room for by default.
const TWO: [&str; 2] = ["nvme", "accelerator,memory=16M"];

/// Room for an accelerator's memory at each port.
const ROOM: &str = "pci=hpmmiosize=2M,hpmmioprefsize=32M";

#[test]
fn four_devices_of_two_boxes_come_and_go() {
    come_and_go(Kernel::V6_12, 1, &[]);
}

#[test]
#[ignore = "long: another kernel"]
fn four_devices_of_two_boxes_come_and_go_under_6_1() {
    come_and_go(Kernel::V6_1, 1, &[]);
}

#[test]
#[ignore = "long: sixteen devices"]
fn sixteen_devices_of_two_boxes_come_and_go() {
    come_and_go(Kernel::V6_12, 4, &["--ports", "16"]);
}

#[test]
#[ignore = "long: sixteen devices, of another kernel"]
fn sixteen_devices_of_two_boxes_come_and_go_under_6_1() {
    come_and_go(Kernel::V6_1, 4, &["--ports", "16"]);
}

/// Of two boxes that have [`TWO`] so many times each.
fn come_and_go(kernel: Kernel, times: usize, flags: &[&str]) {
    let slots = TWO.repeat(times);
    let boxes: [(&str, &[&str]); 2] = [("box-a", &slots), ("box-b", &slots)];
    let plan = Plan { kernels: &[kernel], boxes: &boxes, append: ROOM, flags, ..SMALL };
    play(&plan, |scene| fills_and_empties(scene, &plan));
}

/// All slots' names, and how many of them are drives.
fn slots(plan: &Plan) -> (Vec<String>, usize) {
    let names = plan
        .boxes
        .iter()
        .flat_map(|(name, slots)| (1..=slots.len()).map(move |number| format!("{name}/{number}")));
    let drives = plan.boxes.iter().flat_map(|(_, slots)| *slots).filter(|slot| **slot == "nvme");
    (names.collect(), drives.count())
}

fn fills_and_empties(scene: &mut Scene, plan: &Plan) -> Result<()> {
    let (slots, drives) = slots(plan);
    // One after the other.
    for (count, slot) in (1..).zip(&slots) {
        scene.fabric.allocate("host-1", slot)?;
        devices(scene, count)?;
    }
    work(scene, drives, slots.len() - drives)?;
    all(&slots, |slot| scene.fabric.release(slot))?;
    devices(scene, 0)?;
    // In a burst.
    all(&slots, |slot| scene.fabric.allocate("host-1", slot).map(drop))?;
    devices(scene, slots.len())?;
    work(scene, drives, slots.len() - drives)?;
    all(&slots, |slot| scene.fabric.release(slot))?;
    devices(scene, 0)
}

/// The same for all slots at the same time.
fn all(slots: &[String], act: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let act = &act;
        let running: Vec<_> = slots.iter().map(|slot| scope.spawn(move || act(slot))).collect();
        let results = running.into_iter().map(|thread| thread.join().expect("it does not panic"));
        slots
            .iter()
            .zip(results)
            .try_for_each(|(slot, result)| result.with_context(|| slot.clone()))
    })
}

/// Waits until the guest has so many devices of ours.
fn devices(scene: &mut Scene, count: usize) -> Result<()> {
    let condition = format!("[ $(lspci -D -n | grep -c 1b36:d0a[ce]) -eq {count} ]");
    scene.guests[0].until(&condition, PLUG_BOUND)
}

/// Every drive is written and read at the same time, and holds what is its own; every accelerator
/// has its memory.
fn work(scene: &mut Scene, drives: usize, accelerators: usize) -> Result<()> {
    let guest = &mut scene.guests[0];
    guest.until(&format!("[ $(ls /dev/nvme*n1 | wc -l) -eq {drives} ]"), PLUG_BOUND)?;
    let names = guest.ok("ls /dev/nvme*n1 | tr '\\n' ':'")?;
    verify(guest, &Verify::mixed(names.trim_end_matches(':'), 4, 8))?;
    let own = "for d in /dev/nvme*n1; do echo $d > /tmp/mark; \
               dd if=/tmp/mark of=$d bs=512 conv=sync,fsync 2>/dev/null; done; \
               echo 3 > /proc/sys/vm/drop_caches; \
               for d in /dev/nvme*n1; do head -n 1 $d | grep -qx $d || echo \"$d is another\"; done";
    let said = guest.ok(own)?;
    ensure!(said.is_empty(), "{said}");
    let placed = guest.ok("lspci -D -v -d 1b36:d0ac | grep -c 'Memory at .*size=16M'; true")?;
    ensure!(placed.trim() == accelerators.to_string(), "{placed}: {}", guest.ok("lspci -D -v")?);
    Ok(())
}
