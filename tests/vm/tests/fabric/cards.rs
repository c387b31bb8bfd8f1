//! A guest whose host proxy is the firmware in an emulated card, as is that of the box.

use crate::lending::SUMS;
use crate::scene::{PLUG_BOUND, Plan, SMALL, Scene, play, warnings};
use anyhow::{Result, ensure};

#[test]
#[ignore = "long: a guest and three more machines, all emulated"]
fn linux_uses_a_drive_through_the_firmware_of_two_cards() {
    play(&Plan { cards: true, ..SMALL }, keeps_its_files);
}

fn keeps_its_files(scene: &mut Scene) -> Result<()> {
    let Scene { guests, fabric, .. } = scene;
    let guest = &mut guests[0];
    let mark = guest.mark()?;
    for turn in 1..=2 {
        let lent = fabric.allocate("host-1", "box-a/1")?;
        guest.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
        if turn == 1 {
            guest.ok("mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt")?;
            let files = "dd if=/dev/urandom of=/mnt/large bs=64k count=48 2>/dev/null; \
                         for i in $(seq 10); do mkdir /mnt/$i; seq $i 1000 > /mnt/$i/small; done; \
                         sha256sum /mnt/large /mnt/*/small | sed s,/mnt,., | sort > /tmp/sums; sync";
            guest.ok(files)?;
            guest.ok("umount /mnt")?;
        }
        // Read from the drive, and not from memory.
        guest.ok("e2fsck -f -n /dev/nvme0n1 && mount -o ro /dev/nvme0n1 /mnt")?;
        let read = guest.ok(&format!("{SUMS}; umount /mnt"))?;
        let sorted = guest.ok("sort -k 2 /tmp/sums")?;
        ensure!(read == sorted, "written:\n{sorted}\nread:\n{read}");
        ensure!(read.lines().count() == 11, "{read}");
        fabric.release(&lent)?;
        guest.until("! test -e /dev/nvme0 && ! lspci -D | grep -q Non-Volatile", PLUG_BOUND)?;
    }
    let odd = warnings(guest.dmesg_since(mark)?, &[]);
    ensure!(odd.is_empty(), "the kernel warns: {odd:#?}");
    fabric.check()
}
