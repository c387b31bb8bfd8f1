//! The accelerator, driven from a guest's user space: no driver, no kernel of ours.

use crate::bench::{ACCELERATOR, Bench, LONG, ROOM, Wanted};
use anyhow::{Result, ensure};
use serde_json::Value;
use vm::{Kernel, TALK_BOUND};

/// Runs the bandwidth test; what it says.
fn bandwidth(bench: &mut Bench, address: &str) -> Result<Value> {
    let test = format!("dxpu-guest accelerator {address} --mib 2 --json");
    let output = bench.guest().sh(&test, LONG)?;
    ensure!(output.status == 0, "{}", output.text);
    let report: Value = serde_json::from_str(output.text.trim())?;
    for way in ["host_to_device", "device_to_host"] {
        let rate = report[way]["megabytes_per_second"].as_f64().unwrap_or(0.0);
        ensure!(rate > 0.0 && report[way]["bytes"] == 2 << 20, "{report}");
    }
    println!("{report}");
    Ok(report)
}

/// DMA both ways, registers and device memory; and a device that no driver has goes in order.
fn drives_its_dma(kernel: Kernel, host: &[&str]) -> Result<()> {
    let wanted = Wanted { slots: &["1=accelerator"], host, append: ROOM, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    let address = bench.lend(0, "box-a/1", ACCELERATOR)?;
    bandwidth(&mut bench, &address)?;
    let wrong = bench.guest().sh("dxpu-guest accelerator 0000:00:00.0", TALK_BOUND)?;
    ensure!(wrong.status == 1, "no accelerator is there: {}", wrong.text);
    bench.fabric.release("box-a/1")?;
    bench.guest().until(&format!("test ! -e /sys/bus/pci/devices/{address}"), TALK_BOUND)
}

/// A BAR of a gigabyte, where room was held at boot by the kernel's command line or a placeholder.
fn reaches_a_gigabyte(kernel: Kernel, host: &[&str], append: &str) -> Result<()> {
    let slots = ["1=accelerator,memory=1G"];
    let Some(mut bench) =
        Bench::start(kernel, &Wanted { slots: &slots, host, append, ..Wanted::default() })?
    else {
        return Ok(());
    };
    let address = bench.lend(0, "box-a/1", ACCELERATOR)?;
    let report = bandwidth(&mut bench, &address)?;
    ensure!(report["memory_bytes"] == 1 << 30, "{report}");
    Ok(())
}

/// As above, without any room: the guest lays its windows out anew.
fn makes_room_for_a_gigabyte(kernel: Kernel) -> Result<()> {
    let slots = ["1=accelerator,memory=1G"];
    let Some(mut bench) = Bench::start(kernel, &Wanted { slots: &slots, ..Wanted::default() })?
    else {
        return Ok(());
    };
    let address = bench.lend(0, "box-a/1", ACCELERATOR)?;
    let test = format!("dxpu-guest accelerator {address} --mib 2");
    ensure!(bench.guest().sh(&test, LONG)?.status == 1, "there is no room for the BAR");
    bench.guest().ok("echo 1 > /sys/bus/pci/devices/10000:00:00.0/remove")?;
    bench.guest().ok("echo 1 > /sys/bus/pci/rescan")?;
    let report = bandwidth(&mut bench, &address)?;
    ensure!(report["memory_bytes"] == 1 << 30, "{report}");
    Ok(())
}

#[test]
fn its_dma_is_driven_from_user_space() {
    drives_its_dma(Kernel::V6_12, &[]).unwrap();
}

#[test]
#[ignore = "long: another kernel, and interrupts by the adapter's own vectors"]
fn its_dma_is_driven_from_user_space_of_6_1() {
    drives_its_dma(Kernel::V6_1, &["--vm-interrupts", "remapped"]).unwrap();
}

/// Room for it in a port of two.
const PLACEHOLDER: [&str; 4] = ["--ports", "2", "--placeholder", "0=16M,1G"];

#[test]
fn a_gigabyte_is_reached_behind_a_placeholder() {
    reaches_a_gigabyte(Kernel::V6_12, &PLACEHOLDER, "").unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_gigabyte_is_reached_behind_a_placeholder_by_6_1() {
    reaches_a_gigabyte(Kernel::V6_1, &PLACEHOLDER, "").unwrap();
}

#[test]
#[ignore = "long: another way to hold room at boot"]
fn a_gigabyte_is_reached_where_the_kernel_reserved_windows() {
    let host = ["--ports", "2"];
    reaches_a_gigabyte(Kernel::V6_12, &host, "pci=hpmmiosize=8M,hpmmioprefsize=2G").unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_gigabyte_is_reached_where_6_1_reserved_windows() {
    let host = ["--ports", "2"];
    reaches_a_gigabyte(Kernel::V6_1, &host, "pci=hpmmiosize=8M,hpmmioprefsize=2G").unwrap();
}

#[test]
#[ignore = "long: another way to make room"]
fn a_gigabyte_is_reached_after_a_rescan() {
    makes_room_for_a_gigabyte(Kernel::V6_12).unwrap();
}
