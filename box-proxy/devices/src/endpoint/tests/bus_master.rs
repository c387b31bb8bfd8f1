//! What an endpoint does while it may not send memory requests.

use super::*;

const MASTER: u16 = COMMAND_MEMORY | COMMAND_BUS_MASTER;

/// The two ways in which software takes the bus away, and how it gives it back.
const WAYS: [(u16, u16, u16); 2] =
    [(COMMAND, COMMAND_MEMORY, MASTER), (PM_CONTROL, PM_D3_HOT, PM_D0)];

#[test]
fn reads_end_without_bus_master() {
    let mut r = root();
    r.enable();
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 512 * 100, 1));
    r.config_write16(COMMAND, COMMAND_MEMORY);
    r.answers = Answers::Split;
    while !r.held.is_empty() {
        r.answer(0);
    }
    r.pump();
    assert_eq!(r.only_done().result, Err(DmaError::BusMasterOff));
}

/// A write that was handed over is no longer its function's: nobody would hand it over again.
#[test]
fn writes_and_interrupts_wait_for_bus_master_in_their_order() {
    for (register, off, on) in WAYS {
        let mut r = root();
        let bars = r.enable();
        r.enable_msix(bars[0] + 0x2000, 4);
        r.set_sizes(128, 512);
        r.probe().todo.push(Todo::Write(MEMORY, vec![1; 200]));
        r.probe().todo.push(Todo::Interrupt(2));
        r.probe().todo.push(Todo::Write(MEMORY, vec![2; 64]));
        assert_eq!(r.pump_classes(Classes::NONE), []);
        // One of its TLPs has left already.
        let mut buf = [0; tlp_codec::tlp::MAX_TLP];
        assert!(r.device.poll_tlp(r.now, &mut buf).is_some());
        r.config_write16(register, off);
        assert_eq!((r.writes.len(), &r.interrupts[..]), (0, &[][..]), "nothing is sent");
        assert_eq!(r.counter("interrupts_sent"), 0);
        // What is no memory request is: the configuration write was completed, too.
        r.send(pme_turn_off());
        r.pump();
        assert_eq!(r.messages, [MsgCode::PmeToAck]);
        r.config_write16(register, on);
        assert_eq!(r.writes, [72, 64, 4]);
        assert_eq!((r.memory[..64].to_vec(), r.memory[199]), (vec![2; 64], 1));
        assert_eq!((&r.interrupts[..], r.counter("interrupts_sent")), (&[0x42][..], 1));
        assert_eq!(r.counter("writes_dropped"), 0);
    }
}

/// By then the table may be another driver's.
#[test]
fn an_interrupt_that_waited_is_sent_as_the_table_says_then() {
    let mut r = root();
    let bars = r.enable();
    let table = bars[0] + 0x2000;
    r.enable_msix(table, 4);
    r.probe().todo.push(Todo::Interrupt(1));
    assert_eq!(r.pump_classes(Classes::NONE), []);
    r.config_write16(COMMAND, COMMAND_MEMORY);
    assert_eq!(r.read64(bars[0] + 0x3000), 2, "pending");
    r.write32(table + 16 + 8, 0x77);
    r.write32(table + 16 + 12, 1);
    r.config_write16(COMMAND, MASTER);
    assert_eq!(r.interrupts, []);
    r.write32(table + 16 + 12, 0);
    assert_eq!(r.interrupts, [0x77]);
}

#[test]
fn no_write_that_waited_outlives_a_reset() {
    for (register, off, _) in WAYS {
        for level in [true, false] {
            let mut r = root();
            let bars = r.enable();
            r.enable_msix(bars[0] + 0x2000, 4);
            r.probe().todo.push(Todo::Write(MEMORY, vec![1; 64]));
            r.probe().todo.push(Todo::Interrupt(2));
            assert_eq!(r.pump_classes(Classes::NONE), []);
            r.config_write16(register, off);
            if level {
                let control = r.config_read(DEVICE_CONTROL) as u16;
                r.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_FLR);
            } else {
                r.device.handle_reset(r.now, ResetKind::HotReset);
            }
            r.now += Duration::from_millis(5);
            let bars = r.enable();
            r.enable_msix(bars[0] + 0x2000, 4);
            assert_eq!((r.memory[..64].to_vec(), r.interrupts.len()), (vec![0; 64], 0));
        }
    }
}

/// Messages have room however many writes wait.
#[test]
fn writes_that_wait_leave_room_for_messages() {
    let mut r = root();
    r.enable();
    let writes = (0..POSTED_QUEUE).map(|_| Todo::Write(MEMORY, vec![1; 4]));
    r.probe().todo.extend(writes);
    assert_eq!(r.pump_classes(Classes::NONE), []);
    r.config_write16(COMMAND, COMMAND_MEMORY);
    r.send(pme_turn_off());
    r.pump();
    assert_eq!((r.messages.len(), r.counter("messages_dropped")), (1, 0));
    // As many as nobody sends are dropped.
    (0..65).for_each(|_| r.send(pme_turn_off()));
    r.pump();
    assert_eq!((r.messages.len(), r.counter("messages_dropped")), (65, 1));
    r.config_write16(COMMAND, MASTER);
    assert_eq!(r.writes.len(), POSTED_QUEUE);
}
