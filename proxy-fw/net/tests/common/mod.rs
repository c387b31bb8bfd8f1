//! A network namespace of its own for a test or measurement that needs raw Ethernet.
#![allow(dead_code, reason = "each user of this file needs some of it")]

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Says why a test does not run here, where the test harness knows which test it was.
pub(crate) fn skip(reason: &str) {
    println!("SKIPPED: {reason}");
}

/// Moves this thread into a new, empty network namespace and connects two interfaces in it, `va`
/// and `vb`, by a cable with this MTU. Both are gone when the thread and all sockets that it
/// opened are.
///
/// # Errors
///
/// Why that is not possible here: root is needed, and iproute2.
pub(crate) fn veth_pair(mtu: usize) -> Result<(), String> {
    new_namespace()?;
    let mtu = mtu.to_string();
    ip(&["link", "add", "va", "mtu", &mtu, "type", "veth", "peer", "name", "vb", "mtu", &mtu])?;
    // No neighbour discovery between the frames that are counted.
    for interface in ["va", "vb"] {
        ip(&["link", "set", "dev", interface, "addrgenmode", "none"])?;
        ip(&["link", "set", "dev", interface, "up"])?;
    }
    wait_for_carrier(&["va", "vb"])
}

fn new_namespace() -> Result<(), String> {
    // SAFETY: a plain call; it concerns this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("a network namespace needs root ({error})"));
    }
    Ok(())
}

/// As [`veth_pair`], with `vb` in a namespace of its own, so that IP packets between 192.0.2.1
/// (`va`) and 192.0.2.2 (`vb`) travel over the cable and not within this machine. `open` runs in
/// that other namespace, and what it opens keeps that alive.
///
/// # Errors
///
/// As [`veth_pair`].
pub(crate) fn veth_apart<T: Send>(
    mtu: usize,
    open: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    veth_pair(mtu)?;
    let ((tell, told), (moved, is_moved)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            new_namespace()?;
            // SAFETY: a plain call.
            let thread = unsafe { libc::gettid() };
            tell.send(thread).map_err(|error| error.to_string())?;
            is_moved.recv().map_err(|error| error.to_string())?;
            ip(&["address", "add", "192.0.2.2/24", "dev", "vb"])?;
            ip(&["link", "set", "dev", "vb", "up"])?;
            wait_for_carrier(&["vb"])?;
            Ok(open())
        });
        if let Ok(thread) = told.recv() {
            ip(&["link", "set", "dev", "vb", "netns", &thread.to_string()])?;
            ip(&["address", "add", "192.0.2.1/24", "dev", "va"])?;
            // Without it, the other end has given up already and says why.
            let _ = moved.send(());
        }
        other.join().expect("the other namespace's thread ran to its end")
    })
}

/// Waits until interfaces that were switched on carry frames; the kernel sees to that later.
fn wait_for_carrier(names: &[&str]) -> Result<(), String> {
    let bound = Instant::now() + Duration::from_secs(60);
    while Instant::now() < bound {
        let running = pnet::datalink::interfaces()
            .iter()
            .filter(|interface| interface.is_running() && names.contains(&&*interface.name))
            .count();
        if running == names.len() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{} did not get a carrier", names.join(" and ")))
}

/// Runs iproute2's `ip` in the namespace of this thread.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| format!("iproute2's `ip` does not start ({error}): install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {}` failed: {}", arguments.join(" "), said.trim()))
}
