//! Devices are erased between one tenant and the next.

use super::{pair, steps};
use crate::common::fake::{Fake, Script};
use crate::common::{Manager, eventually};
use proxy_core::control::{
    ControlError, EraseFailure, EraseRequest, Erasure, Reply, Request, SlotState,
};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

const BY_BOX: &str = "[[erase]]\nmodel = \"NVMe\"\nmeans = [\"sanitize-block\", \"format-user\"]\n\
                      within_s = 77\n";

fn is_erase(request: &Request) -> bool {
    matches!(request, Request::Erase(_))
}

fn stands(erasure: Erasure) -> Script {
    Script::Answer(Box::new(Reply::Erasure(erasure.into())))
}

fn asked(fake: &Fake) -> Vec<EraseRequest> {
    let of = |request: &Request| match request {
        Request::Erase(erase) => Some(erase.clone()),
        _ => None,
    };
    fake.with(|state| state.log.iter().filter_map(of).collect())
}

fn latest(manager: &Manager) -> Value {
    manager.get("/v1/erasures")["items"][0].clone()
}

/// When the latest began.
fn since(manager: &Manager) -> String {
    latest(manager)["since"].as_str().unwrap().to_owned()
}

#[test]
fn a_released_device_is_erased_before_anybody_gets_it() {
    let manager = Manager::with_settings(BY_BOX, &[("operation_ms", 2_000)]);
    let (_host, at_box) = pair(&manager);
    let key = {
        manager.text(&["allocate", "--host", "host1"]);
        at_box.bound(1).unwrap()
    };
    at_box.rule({
        let mut looks = 0;
        move |request| {
            looks += u32::from(is_erase(request));
            (is_erase(request) && looks < 8).then(|| stands(Erasure::Running(100 * looks as u16)))
        }
    });
    manager.text(&["release", "alloc-1", "--no-wait"]);
    // It takes longer than an operation may, which is no reason to end it.
    manager.wait_slot("box1/1", "erasing");
    let output = manager.cli(&[
        "allocate",
        "--host",
        "host1",
        "--box",
        "box1",
        "--slot",
        "1",
        "--wait-ms",
        "0",
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("slot box1/1 has a device that is being erased"), "{said}");
    manager.wait_slot("box1/1", "free");
    let asked = asked(&at_box);
    assert_eq!((asked[0].key, asked[0].within_s, asked[0].methods.iter().count()), (key, 77, 2));
    assert!(asked.len() >= 8 && asked.iter().all(|a| *a == asked[0]), "the same each time");
    let operation = eventually("the end", || {
        let operation = manager.get("/v1/operations/op-2");
        (operation["state"] == "succeeded").then_some(operation)
    });
    assert_eq!(steps(&operation), ["unbind-port done", "unbind-slot done", "erase done"]);
    let erasure = manager.get("/v1/erasures/erase-1");
    assert_eq!((&erasure["state"], &erasure["detail"]), (&json!("done"), &json!("sanitize-block")));
    assert_eq!((&erasure["host"], &erasure["allocation"]), (&json!("host1"), &json!("alloc-1")));
    assert_eq!((&erasure["operation"], &erasure["slot"]), (&json!("op-2"), &json!("box1/1")));
    manager.wait_event("erased", "erase-1: box1/1 is erased: sanitize-block");
    let listed = manager.text(&["erasures"]);
    assert!(listed.contains("erase-1") && listed.contains("sanitize-block"), "{listed}");
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
}

#[test]
fn what_could_not_be_erased_is_not_lent_until_somebody_says_so() {
    let manager = Manager::with_settings(BY_BOX, &[]);
    let (_host, at_box) = pair(&manager);
    at_box.script(
        is_erase,
        [
            stands(Erasure::Failed(EraseFailure::Status(0x1c))),
            Script::Refuse(ControlError::Busy),
            stands(Erasure::Failed(EraseFailure::TooLong)),
        ],
    );
    manager.text(&["allocate", "--host", "host1"]);
    let said = manager.cli(&["release", "alloc-1"]);
    assert!(said.status.success(), "the device is back, erased or not");
    let said = String::from_utf8(said.stdout).unwrap() + &String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("box1/1 is not erased and is not lent"), "{said}");
    assert!(said.contains("NVMe status 0x1c"), "{said}");
    manager.wait_slot("box1/1", "unerased");
    manager.wait_event("not-erased", "NVMe status 0x1c");
    let lend = ["allocate", "--host", "host1", "--box", "box1", "--slot", "1"];
    let said = String::from_utf8(manager.cli(&lend).stderr).unwrap();
    assert!(said.contains("could not be erased") && said.contains("dxpu-manager erase"), "{said}");
    assert!(said.contains(&format!("(erase-1, since {}", since(&manager))), "{said}");
    // Once more, under a name of its own; and then as it is.
    let first = asked(&at_box)[0].key.epoch;
    let (code, failed) = manager.failure(&["erase", "box1/1"]);
    let says = "erase-2: box1/1 is not erased (failed)";
    assert!(code == 7 && failed.to_string().contains(says), "{code}: {failed}");
    assert_eq!(latest(&manager)["state"], "failed");
    assert!(asked(&at_box).last().unwrap().key.epoch > first);
    let waived = manager.json(&["erase", "box1/1", "--waive", "it is going to the shredder"]);
    assert_eq!((&waived["state"], &waived["id"]), (&json!("waived"), &json!("erase-2")));
    manager.wait_slot("box1/1", "free");
    manager.text(&lend);
    let (code, problem) = manager.failure(&["erase", "box1/1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-in-use")));
    let since = problem["owner"]["since"].as_str().unwrap();
    let says = format!("slot box1/1 is lent to host1 (alloc-2) since {since}; release it first");
    assert_eq!(problem["detail"], says);
    assert_eq!(manager.cli(&["erase", "box1/2", "--waive", ""]).status.code(), Some(2));
}

/// A device that failed its reset is not touched by its box: that ends the erasure, and the release.
#[test]
fn an_erasure_does_not_wait_for_ever_for_a_quarantined_device() {
    let rule = "[[erase]]\nmodel = \"NVMe\"\nmeans = [\"format-user\"]\nwithin_s = 1\n";
    let manager = Manager::with_settings(rule, &[]);
    let (_host, at_box) = pair(&manager);
    let refuse = |request: &Request| match request {
        Request::Erase(erase) => Some(Script::Refuse(ControlError::Quarantined(erase.key.slot))),
        _ => None,
    };
    at_box.rule(refuse);
    manager.text(&["allocate", "--host", "host1"]);
    let said = manager.cli(&["release", "alloc-1"]);
    assert!(said.status.success(), "the device is back, erased or not");
    manager.wait_event("not-erased", "dxpu-manager recover box1/1");
    // By hand it is not even begun.
    at_box.set_state(1, SlotState::Quarantined);
    manager.wait_slot("box1/1", "unerased");
    let refused = eventually("a refusal", || {
        let (code, problem) = manager.failure(&["erase", "box1/1"]);
        (problem["code"] == "slot-quarantined").then_some((code, problem))
    });
    assert!(refused.0 == 4 && refused.1.to_string().contains("recover box1/1"), "{refused:?}");
}

/// It reports the device, and does not find all of it: one of its functions may not answer any more.
#[test]
fn an_erasure_does_not_wait_for_ever_for_what_its_box_does_not_find() {
    let rule = "[[erase]]\nmodel = \"NVMe\"\nmeans = [\"format-user\"]\nwithin_s = 1\n";
    let manager = Manager::with_settings(rule, &[]);
    let (_host, at_box) = pair(&manager);
    at_box.rule(|request| match request {
        Request::Erase(erase) => Some(Script::Refuse(ControlError::NoSuchSlot(erase.key.slot))),
        _ => None,
    });
    manager.text(&["allocate", "--host", "host1"]);
    let said = manager.cli(&["release", "alloc-1"]);
    assert!(said.status.success(), "the device is back, erased or not");
    manager.wait_event("not-erased", "box1/1 is not erased and is not lent");
    let erasure = latest(&manager);
    assert_eq!(erasure["state"], "failed");
    assert!(erasure["detail"].as_str().unwrap().contains("does not find it"), "{erasure}");
    manager.wait_slot("box1/1", "unerased");
}

#[test]
fn an_erasure_goes_on_after_a_crash_and_waits_for_its_box() {
    let mut manager = Manager::with_settings(BY_BOX, &[]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_box.rule(|request| is_erase(request).then(|| stands(Erasure::Running(500))));
    manager.text(&["release", "alloc-1", "--no-wait"]);
    eventually("half of it", || (latest(&manager)["permille"] == 500).then_some(()));
    manager.kill();
    let (box_again, host_again) = (at_box.leave(), at_host.leave());
    manager.run();
    manager.wait_slot("box1/1", "erasing");
    let (code, problem) = manager.failure(&["erase", "box1/1"]);
    let says = format!("slot box1/1 is being erased already (erase-1) since {}", since(&manager));
    assert_eq!((code, &problem["detail"]), (4, &json!(says)));
    eventually("its wait", || {
        let detail = latest(&manager)["detail"].as_str().unwrap().to_owned();
        detail.contains("waits for box box1, which is not connected").then_some(())
    });
    box_again.1.lock().unwrap().rules.clear();
    let _box = Fake::insist(manager.control, box_again.0, box_again.1);
    let _host = Fake::insist(manager.control, host_again.0, host_again.1);
    manager.wait_slot("box1/1", "free");
    assert_eq!(latest(&manager)["state"], "done");
    let items = manager.get("/v1/erasures")["items"].as_array().unwrap().len();
    assert_eq!(items, 1, "one erasure for one release");
}

#[test]
fn a_program_erases_what_the_box_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let hook = folder.path().join("erase");
    let text = "#!/bin/sh\nread line\necho \"$line\" > \"$0.got\"\n\
                case \"$line\" in *'\"slot\":2'*) echo no key >&2; exit 3;; esac\necho scrubbed 80 GB\n";
    std::fs::write(&hook, text).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = format!(
        "[[erase]]\nclass = 1\nmeans = [\"format-user\"]\n[[erase]]\nhook = {hook:?}\nrequired = false\n"
    );
    let manager = Manager::with_settings(&settings, &[]);
    let (_host, at_box) = pair(&manager);
    for (slot, state, detail) in [("1", "done", "scrubbed 80 GB"), ("2", "failed", "no key")] {
        let lent = manager.json(&["allocate", "--host", "host1", "--box", "box1", "--slot", slot]);
        manager.text(&["release", lent["id"].as_str().unwrap()]);
        let erasure = latest(&manager);
        assert_eq!(erasure["state"], state);
        assert!(erasure["detail"].as_str().unwrap().contains(detail), "{erasure}");
        manager.wait_slot(&format!("box1/{slot}"), "free");
    }
    assert!(asked(&at_box).is_empty());
    let got = std::fs::read_to_string(folder.path().join("erase.got")).unwrap();
    let got: Value = serde_json::from_str(&got).unwrap();
    assert_eq!(
        (&got["box"], &got["slot"], &got["model"]),
        (&json!("box1"), &json!(2), &json!("nvme"))
    );
    assert_eq!((&got["erasure"], &got["host"]), (&json!("erase-2"), &json!("host1")));
}

/// Numbers of the processes that a program wrote down, its own first, of each time that it ran.
fn processes(folder: &std::path::Path) -> Vec<i32> {
    let text = std::fs::read_to_string(folder.join("erase.pids")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Whether a process runs: one that nobody has waited for yet does not.
fn runs(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A program that begins another one, and waits until a file is there.
fn slow_program(folder: &std::path::Path) -> std::path::PathBuf {
    let hook = folder.join("erase");
    let text = "#!/bin/sh\nread line\nsleep 100000 &\necho $! > \"$0.new\"\necho $$ >> \"$0.new\"\n\
                cat \"$0.new\" >> \"$0.pids\"\n\
                while ! test -e \"$0.may-end\"; do sleep 0.05; done\nkill $!\necho ended\n";
    std::fs::write(&hook, text).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    hook
}

/// The processes of a slow program when it runs and so many were begun since the first time.
fn begun(folder: &std::path::Path, count: usize) -> Vec<i32> {
    eventually("the program", || {
        let processes = processes(folder);
        (processes.len() == count && processes[count - 2..].iter().all(|p| runs(*p)))
            .then_some(processes)
    })
}

fn wait_detail(manager: &Manager, text: &str) {
    eventually(text, || latest(manager)["detail"].as_str().unwrap().contains(text).then_some(()));
}

/// A program of the operator's knows a slot; what is in it only the box knows.
#[test]
fn a_program_is_not_run_on_what_was_put_in_while_nobody_looked() {
    let folder = tempfile::tempdir().unwrap();
    let hook = slow_program(folder.path());
    let mut manager = Manager::with_settings(&format!("[[erase]]\nhook = {hook:?}\n"), &[]);
    let (_host, at_box) = pair(&manager);
    at_box.set_device(1, Some(0x77));
    let serial = "0000000000000077";
    eventually("the device", || {
        manager.get("/v1/boxes/box1/slots/1").to_string().contains(serial).then_some(())
    });
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    manager.text(&["release", "alloc-1", "--no-wait"]);
    let first = begun(folder.path(), 2);
    manager.kill();
    eventually("the end of the program", || first.iter().all(|p| !runs(*p)).then_some(()));
    // Another device is in its place when the manager is back.
    let (spec, state) = at_box.leave();
    state.lock().unwrap().slots[0].serial = Some(0x88);
    manager.run();
    wait_detail(&manager, "waits for box box1, which is not connected");
    let at_box = Fake::insist(manager.control, spec, state);
    eventually("its owing", || (latest(&manager)["state"] == "owed").then_some(()));
    manager.wait_slot("box1/1", "free");
    assert_eq!(processes(folder.path()).len(), 2, "it was not run again");
    at_box.set_device(2, Some(0x77));
    begun(folder.path(), 4);
    assert_eq!(latest(&manager)["slot"], "box1/2");
    std::fs::write(folder.path().join("erase.may-end"), "").unwrap();
    eventually("the end", || (latest(&manager)["state"] == "done").then_some(()));
}

#[test]
fn a_program_ends_with_the_connection_of_its_box_and_with_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let hook = slow_program(folder.path());
    let manager = Manager::with_settings(&format!("[[erase]]\nhook = {hook:?}\n"), &[]);
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    manager.text(&["release", "alloc-1", "--no-wait"]);
    let first = begun(folder.path(), 2);
    let waive = ["erase", "erase-1", "--waive", "it is shredded"];
    let (code, problem) = manager.failure(&waive);
    assert_eq!(code, 4);
    let says =
        format!("slot box1/1 is being erased by a program (erase-1) since {}", since(&manager));
    assert_eq!(problem["detail"], says);
    let (spec, state) = at_box.leave();
    eventually("the end of the first", || first.iter().all(|p| !runs(*p)).then_some(()));
    wait_detail(&manager, "waits for box box1, which is not connected");
    let at_box = Fake::insist(manager.control, spec, state);
    let second = begun(folder.path(), 4)[2..].to_vec();
    at_box.set_device(1, None);
    eventually("the end of the second", || second.iter().all(|p| !runs(*p)).then_some(()));
    eventually("its owing", || (latest(&manager)["state"] == "owed").then_some(()));
    let serial = at_box.with(|s| s.node).map_or(0, |node| u64::from(node.get()));
    at_box.set_device(1, Some(0x1122_3344_0000_7700 + (serial << 16)));
    begun(folder.path(), 6);
    // What waits for a box that may never come back can be taken as it is.
    drop(at_box);
    wait_detail(&manager, "waits for box box1, which is not connected");
    assert_eq!(manager.json(&waive)["state"], "waived");
}

/// A manager that dies right after it has started the guard has told it nothing, or not all of it.
#[test]
fn a_guard_that_was_told_nothing_starts_nothing() {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let hook = folder.path().join("erase");
    std::fs::write(&hook, "#!/bin/sh\ntouch \"$0.ran\"\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    for told in ["", "{\"erasure\":\"erase-1\"", "{\"erasure\":\"erase-1\"}\n"] {
        let mut guard = std::process::Command::new(env!("CARGO_BIN_EXE_dxpu-manager"));
        guard.arg("guard-erasing-program").arg(&hook).process_group(0);
        let (mut ours, its) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut child = guard.stdin(std::os::fd::OwnedFd::from(its)).spawn().unwrap();
        drop(guard);
        ours.write_all(told.as_bytes()).unwrap();
        if told.ends_with('\n') {
            // Told everything, it does it: what is looked for would be there.
            eventually("the program", || folder.path().join("erase.ran").exists().then_some(()));
        }
        drop(ours);
        child.wait().unwrap();
        assert_eq!(folder.path().join("erase.ran").exists(), told.ends_with('\n'), "{told:?}");
    }
}

#[test]
fn a_program_dies_with_its_manager_and_runs_once_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let hook = slow_program(folder.path());
    let mut manager = Manager::with_settings(&format!("[[erase]]\nhook = {hook:?}\n"), &[]);
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["release", "alloc-1", "--no-wait"]);
    let first = begun(folder.path(), 2);
    manager.kill();
    eventually("the end of the first", || first.iter().all(|p| !runs(*p)).then_some(()));
    let (spec, state) = at_box.leave();
    manager.run();
    let _box = Fake::insist(manager.control, spec, state);
    let both = begun(folder.path(), 4);
    assert!(both[..2].iter().all(|p| !runs(*p)), "the first does not run beside the second");
    std::fs::write(folder.path().join("erase.may-end"), "").unwrap();
    eventually("the end", || (latest(&manager)["state"] == "done").then_some(()));
    assert!(latest(&manager)["detail"].as_str().unwrap().ends_with(": ended"));
}

#[test]
fn a_program_that_takes_too_long_is_killed_with_what_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let hook = slow_program(folder.path());
    let rule = format!("[[erase]]\nhook = {hook:?}\nwithin_s = 1\n");
    let manager = Manager::with_settings(&rule, &[]);
    let (_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["release", "alloc-1"]);
    let erasure = latest(&manager);
    assert!(erasure["detail"].as_str().unwrap().contains("did not end within 1s"), "{erasure}");
    let all = processes(folder.path());
    eventually("their end", || all.iter().all(|p| !runs(*p)).then_some(()));
}

/// After a program has ended, its box may be at work on the device for as long as it likes.
#[test]
fn a_box_at_work_after_a_program_is_waited_for_with_a_bound_and_can_be_waived() {
    for within in ["", "within_s = 3\n"] {
        let folder = tempfile::tempdir().unwrap();
        let hook = slow_program(folder.path());
        let rule = format!("[[erase]]\nhook = {hook:?}\n{within}");
        let manager = Manager::with_settings(&rule, &[]);
        let (_host, at_box) = pair(&manager);
        manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
        manager.text(&["release", "alloc-1", "--no-wait"]);
        begun(folder.path(), 2);
        at_box.set_state(1, SlotState::Probing);
        if within.is_empty() {
            std::fs::write(folder.path().join("erase.may-end"), "").unwrap();
            wait_detail(&manager, "box box1 is at work on the device");
            let waived = manager.json(&["erase", "erase-1", "--waive", "it is shredded"]);
            assert_eq!(waived["state"], "waived");
        } else {
            eventually("its failure", || (latest(&manager)["state"] == "failed").then_some(()));
            wait_detail(&manager, "did not end within 3s");
        }
        assert_eq!(processes(folder.path()).len(), 2, "it was not run again");
    }
}

/// What it began does not hold up what it did: neither in its group, nor out of it.
#[test]
fn a_program_that_leaves_processes_behind_is_done_when_it_ends() {
    for begin in ["sleep 100000 &\necho $!", "setsid sleep 20 &\necho $!"] {
        let folder = tempfile::tempdir().unwrap();
        let hook = folder.path().join("erase");
        let text = format!("#!/bin/sh\nread line\n{begin} > \"$0.pids\"\necho clean\n");
        std::fs::write(&hook, text).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
        let rule = format!("[[erase]]\nhook = {hook:?}\nwithin_s = 15\n");
        let manager = Manager::with_settings(&rule, &[]);
        let (_host, _box) = pair(&manager);
        manager.text(&["allocate", "--host", "host1"]);
        manager.text(&["release", "alloc-1"]);
        let erasure = latest(&manager);
        assert_eq!(erasure["state"], "done", "{begin}: {erasure}");
        assert!(erasure["detail"].as_str().unwrap().ends_with(": clean"), "{erasure}");
        if !begin.starts_with("setsid") {
            let left = processes(folder.path());
            eventually("its end", || left.iter().all(|p| !runs(*p)).then_some(()));
        }
    }
}

#[test]
fn a_program_that_cannot_be_started_or_is_killed_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let hook = folder.path().join("erase");
    std::fs::write(&hook, "#!/bin/sh\nkill -KILL $$\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let manager = Manager::with_settings(&format!("[[erase]]\nhook = {hook:?}\n"), &[]);
    let (_host, _box) = pair(&manager);
    let failed = |said: &str| {
        let erasure = eventually(said, || {
            let erasure = latest(&manager);
            (erasure["state"] == "failed").then_some(erasure)
        });
        assert!(erasure["detail"].as_str().unwrap().contains(said), "{erasure}");
    };
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    manager.text(&["release", "alloc-1"]);
    failed("signal: 9");
    std::fs::remove_file(&hook).unwrap();
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "2"]);
    manager.text(&["release", "alloc-2"]);
    failed("it cannot be started");
}

#[test]
fn rules_are_checked_when_the_manager_starts() {
    for (rule, said) in [
        ("model = \"a\"", "erase[0].means: name at least one, or a hook"),
        ("means = [\"burn\"]", "burn"),
        ("means = [\"format-user\", \"format-user\"]", "is there twice"),
        ("hook = \"erase\"", "no absolute path"),
        ("hook = \"/e\"\nclass = 16777216", "24 bits"),
        ("hook = \"/e\"\nwithin_s = 0", "within_s"),
        ("hook = \"/nowhere/e\"", "erase[0].hook: /nowhere/e does not exist; put the program"),
        ("hook = \"/dev/null\"", "erase[0].hook: /dev/null is no file"),
        ("hook = \"HERE/m.toml\"", "let this user execute it (chmod +x HERE/m.toml)"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let here = |text: &str| text.replace("HERE", folder.path().to_str().unwrap());
        let (rule, said) = (&here(rule), &here(said));
        std::fs::write(folder.path().join("m.toml"), format!("[[erase]]\n{rule}\n")).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dxpu-manager"))
            .current_dir(folder.path())
            .args(["serve", "--config", "m.toml", "--store", "s"])
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(said), "{rule}: {error}");
        assert!(!output.status.success());
    }
}
