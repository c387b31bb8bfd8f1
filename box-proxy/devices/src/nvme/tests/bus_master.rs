//! Completions on their way when software takes the bus away.

use super::*;
use crate::device::Classes;
use tlp_codec::tlp::Class;

const MASTER: u16 = COMMAND_MEMORY | COMMAND_BUS_MASTER;

/// A drive whose first I/O queue has a completion that has not left, when the bus is gone; the
/// command's identifier.
fn with_a_completion_on_its_way() -> (Drive, u16) {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    d.root.interrupts.clear();
    let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
    let id = d.post_command(1, read);
    d.ring_all_unpumped();
    d.root.pump_classes(Classes::ALL.without(Class::Posted));
    d.root.config_write16(COMMAND, COMMAND_MEMORY);
    assert_eq!((d.take_ids(1), d.root.interrupts.len()), (vec![], 0));
    (d, id)
}

/// An entry that does not come would leave a hole, at which a host that looks for the phase stops
/// for ever.
#[test]
fn a_completion_waits_for_the_bus_and_leaves_no_hole() {
    let (mut d, id) = with_a_completion_on_its_way();
    d.root.config_write16(COMMAND, MASTER);
    assert_eq!((d.take_ids(1), &d.root.interrupts[..]), (vec![id], &[0x41][..]));
    let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
    assert_eq!(d.io(1, read), Ok(0));
}

/// After a reset of the controller the memory of its queues is somebody else's.
#[test]
fn no_completion_that_waited_outlives_a_controller_reset() {
    let (mut d, _) = with_a_completion_on_its_way();
    d.disable();
    assert_eq!(d.csts(), 0);
    d.root.memory.fill(0);
    d.root.config_write16(COMMAND, MASTER);
    assert!(d.root.memory.iter().all(|byte| *byte == 0));
    assert_eq!(d.root.counter("writes_dropped"), 2, "a block and an entry");
    d.enable();
    d.make_queues(1);
    let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
    assert_eq!(d.io(1, read), Ok(0));
}
