//! The harness itself, with devices that QEMU has: what it says of a guest has to be so.

use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};
use vm::{BOOT_BOUND, Cache, Guest, Kernel, Options, Stage, TALK_BOUND};

/// A guest with a drive behind a root port and a network card that is connected to nothing.
fn guest(cache: &Cache, kernel: Kernel, folder: &Path) -> Result<Guest> {
    let image = folder.join("drive.img");
    std::fs::File::create(&image)?.set_len(128 << 20)?;
    let drive = format!("if=none,id=drive,format=raw,file={}", image.display());
    let options = Options::new("guest", kernel)
        .with_modules(["e1000e"])
        .with_arguments(["-device", "pcie-root-port,id=rp1,slot=1"])
        .with_arguments(["-drive", &drive])
        .with_arguments(["-device", "nvme,drive=drive,serial=HARNESS,bus=rp1"])
        .with_arguments(["-device", "e1000e,romfile="]);
    let mut guest = Guest::start(cache, &options, folder)?;
    guest.boot(BOOT_BOUND)?;
    Ok(guest)
}

fn drivers_bind_and_a_file_system_holds(kernel: Kernel) -> Result<()> {
    let Some(stage) = Stage::take(&[kernel])? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let begin = Instant::now();
    let mut guest = guest(&stage.cache, kernel, folder.path())?;
    println!("booted in {:.1} s", begin.elapsed().as_secs_f64());
    println!("{}", guest.ok("cat /proc/version")?);
    guest.until("test -b /dev/nvme0n1", TALK_BOUND)?;
    let pci = guest.ok("lspci -vv")?;
    assert!(!pci.contains("Unable"), "{pci}");
    for text in ["Non-Volatile memory controller", "Kernel driver in use: nvme", "e1000e", "MSI-X"]
    {
        assert!(pci.contains(text), "`{text}` is not in {pci}");
    }
    assert_eq!(guest.ok("cat /sys/class/nvme/nvme0/serial")?.trim(), "HARNESS");
    guest.ok("mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt")?;
    let sent: Vec<u8> =
        (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    guest.put("/mnt/file", &sent)?;
    guest.ok("umount /mnt && mount /dev/nvme0n1 /mnt && echo 3 > /proc/sys/vm/drop_caches")?;
    assert_eq!(guest.get("/mnt/file")?, sent);
    let fio = "fio --name=verify --filename=/mnt/fio --size=4M --rw=randwrite --bs=4k --iodepth=8 \
               --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1";
    let output = guest.sh(fio, TALK_BOUND)?;
    assert_eq!(output.status, 0, "{}", output.text);
    assert!(output.text.contains("err= 0"), "{}", output.text);
    guest.ok("umount /mnt && nvme id-ctrl /dev/nvme0 | grep -q HARNESS")?;
    println!("in all {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}

#[test]
#[ignore = "long: no device of ours"]
fn a_guest_of_6_1_uses_its_devices() {
    drivers_bind_and_a_file_system_holds(Kernel::V6_1).unwrap();
}

#[test]
#[ignore = "long: no device of ours"]
fn a_guest_of_6_12_uses_its_devices() {
    drivers_bind_and_a_file_system_holds(Kernel::V6_12).unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_guest_of_the_newest_kernel_uses_its_devices() {
    drivers_bind_and_a_file_system_holds(Kernel::Backports).unwrap();
}

#[test]
fn what_is_said_of_a_guest_is_so() {
    let Some(stage) = Stage::take(&[Kernel::V6_12]).unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut guest = guest(&stage.cache, Kernel::V6_12, folder.path()).unwrap();

    // Commands: status and output, as they are, several at once.
    let output = guest.sh("printf 'a\\001\\n\\n'; echo b >&2; exit 7", TALK_BOUND).unwrap();
    assert_eq!((output.status, output.text.as_str()), (7, "a\u{1}\n\nb\n"));
    let killed = guest.sh("kill -9 $$", TALK_BOUND).unwrap();
    assert_eq!(killed.status, 128 + 9);
    let slow = guest.spawn("until test -e /tmp/go; do sleep 0.05; done; echo late").unwrap();
    guest.ok("touch /tmp/go").unwrap();
    assert_eq!(guest.finish(slow, TALK_BOUND).unwrap().text, "late\n");
    let lines = guest.ok("seq 100000").unwrap();
    assert!(lines.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=100_000));
    let error = guest.ok("ls /none").unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    let bound = Duration::from_secs(1);
    let error = guest.sh("sleep 1000", bound).unwrap_err().to_string();
    assert!(error.contains("in vain"), "{error}");
    let error = guest.until("test -e /none", bound).unwrap_err().to_string();
    assert!(error.contains("test -e /none"), "{error}");

    // The kernel's log.
    let mark = guest.mark().unwrap();
    guest.ok("echo '<4>oh' > /dev/kmsg; echo '<6>ah' > /dev/kmsg").unwrap();
    let said = guest.dmesg_since(mark).unwrap();
    let found: Vec<_> = said.iter().map(|m| (m.is_warning(), m.text.as_str())).collect();
    assert_eq!(found, [(true, "oh"), (false, "ah")]);
    assert!(guest.console().contains("Linux version 6.12"));

    // Booting anew, by itself and by the button: nothing of before is taken for an answer.
    let boot = guest.ok("cat /proc/sys/kernel/random/boot_id").unwrap();
    let hung = guest.spawn("sleep 1000").unwrap();
    guest.reboot(BOOT_BOUND).unwrap();
    let error = guest.finish(hung, TALK_BOUND).err().map(|e| format!("{e:#}")).unwrap();
    assert!(error.contains("begun anew"), "{error}");
    let second = guest.ok("cat /proc/sys/kernel/random/boot_id").unwrap();
    assert_ne!(boot, second);
    assert!(guest.dmesg_since(mark).is_err() || !guest.ok("dmesg").unwrap().contains("oh"));
    guest.reset(BOOT_BOUND).unwrap();
    assert_ne!(second, guest.ok("cat /proc/sys/kernel/random/boot_id").unwrap());

    // A panic is told as one, soon.
    let panic = guest.sh("echo c > /proc/sysrq-trigger", TALK_BOUND).unwrap_err();
    assert!(format!("{panic:#}").contains("panicked"), "{panic:#}");
}
