use super::*;
use crate::config_space::lanes;
use proptest::prelude::*;

const ROOT_ERROR_COMMAND: u16 = 0x12c;
const ROOT_ERROR_STATUS: u16 = 0x130;
const SOURCE: u16 = 0x134;
const MSI: u16 = 0x50;

fn config() -> RootPortConfig {
    RootPortConfig {
        vendor_id: 0x1234,
        device_id: 0xd0b2,
        subsystem: (0x1234, 0xd0b0),
        max_payload: 512,
        payload: 256,
        serial: 0x0011_2233_4455_6677,
    }
}

fn port() -> RootPort {
    RootPort::new(&config(), Bdf::default()).unwrap()
}

/// As an operating system leaves it: masters, SERR forwarded, MSI and every report on.
fn ready() -> RootPort {
    let mut port = port();
    port.write(0x04, 0x6, 0x3);
    port.write(0x3c, 1 << 17, 0xc);
    port.write(0x78, 0xf, 0x1);
    port.write(MSI + 4, 0xfee0_1000, 0xf);
    port.write(MSI + 0xc, 0x41, 0x3);
    port.write(MSI, 1 << 16, 0xc);
    port.write(ROOT_ERROR_COMMAND, 0x7, 0x1);
    port
}

fn device() -> Bdf {
    Bdf::from_bits(0x0300)
}

#[test]
fn it_is_a_root_port_of_the_configured_identity() {
    let port = port();
    assert_eq!(port.read(0), 0xd0b2_1234);
    assert_eq!(port.read(0x08) >> 8, 0x06_0400);
    assert_eq!(port.read(0x70) >> 20 & 0xf, 4, "a root port");
    assert_eq!(port.read(0x70) >> 24 & 1, 0, "without a slot");
    assert_eq!(port.read(0x78) >> 5 & 7, 1, "payload as firmware left it");
    assert_eq!(port.max_payload(), 256);
    assert_eq!((port.read(0x154), port.read(0x158)), (0x4455_6677, 0x0011_2233));
    assert!(RootPort::new(&RootPortConfig { payload: 100, ..config() }, Bdf::default()).is_err());
    assert!(RootPort::new(&RootPortConfig { vendor_id: 0, ..config() }, Bdf::default()).is_err());
}

#[test]
fn an_error_message_is_kept_with_its_source_and_interrupts_once() {
    let mut port = ready();
    assert!(port.handle_message(device(), MsgCode::ErrCor));
    assert_eq!(port.read(ROOT_ERROR_STATUS), 1);
    assert_eq!(port.read(SOURCE), 0x0300);
    assert_eq!(port.poll_interrupt(), Some((0xfee0_1000, 0x41)));
    assert_eq!(port.poll_interrupt(), None);
    // A second one before software looked: the first source stays.
    assert!(port.handle_message(Bdf::from_bits(0x0400), MsgCode::ErrCor));
    assert_eq!(port.read(ROOT_ERROR_STATUS), 0b11);
    assert_eq!(port.read(SOURCE), 0x0300);
    assert_eq!(port.poll_interrupt(), None);
    port.write(ROOT_ERROR_STATUS, 0b11, 0xf);
    assert!(port.handle_message(Bdf::from_bits(0x0400), MsgCode::ErrCor));
    assert_eq!(port.read(SOURCE), 0x0400);
    assert!(port.poll_interrupt().is_some());
}

#[test]
fn uncorrectable_errors_have_their_own_source_and_say_which_came_first() {
    let mut port = ready();
    assert!(port.handle_message(device(), MsgCode::ErrFatal));
    assert_eq!(port.read(ROOT_ERROR_STATUS), 0b101_0100);
    assert_eq!(port.read(SOURCE), 0x0300_0000);
    port.write(ROOT_ERROR_STATUS, 0x7f, 0xf);
    assert!(port.handle_message(device(), MsgCode::ErrNonFatal));
    assert_eq!(port.read(ROOT_ERROR_STATUS), 0b010_0100);
    assert!(port.handle_message(device(), MsgCode::ErrFatal));
    assert_eq!(port.read(ROOT_ERROR_STATUS), 0b110_1100, "not the first");
}

#[test]
fn without_serr_forwarding_nothing_is_kept() {
    let mut port = ready();
    port.write(0x3c, 0, 0xc);
    assert!(port.handle_message(device(), MsgCode::ErrNonFatal));
    assert_eq!(port.read(ROOT_ERROR_STATUS), 0);
    assert_ne!(port.read(0x1c) & 1 << 30, 0, "but for Received System Error");
    assert_eq!(port.poll_interrupt(), None);
}

#[test]
fn what_is_not_enabled_does_not_interrupt_until_it_is() {
    let mut port = ready();
    port.write(ROOT_ERROR_COMMAND, 0, 0x1);
    port.handle_message(device(), MsgCode::ErrNonFatal);
    assert_eq!(port.poll_interrupt(), None);
    port.write(ROOT_ERROR_COMMAND, 0x1, 0x1);
    assert_eq!(port.poll_interrupt(), None, "of another severity");
    port.write(ROOT_ERROR_COMMAND, 0x3, 0x1);
    assert!(port.poll_interrupt().is_some());
}

#[test]
fn a_masked_interrupt_is_pending_until_unmasked() {
    let mut port = ready();
    port.write(MSI + 0x10, 1, 0xf);
    port.handle_message(device(), MsgCode::ErrCor);
    assert_eq!(port.poll_interrupt(), None);
    assert_eq!(port.read(MSI + 0x14), 1);
    port.write(MSI + 0x10, 0, 0xf);
    assert!(port.poll_interrupt().is_some());
    assert_eq!(port.read(MSI + 0x14), 0);
}

#[test]
fn an_interrupt_that_cannot_be_sent_waits_until_it_can() {
    // MSI is not enabled; then bus mastering is not.
    for (register, off, on) in [(MSI, 0, 1 << 16), (0x04, 0, 0b110)] {
        let mut port = ready();
        port.write(register, off, 0xf);
        port.handle_message(device(), MsgCode::ErrCor);
        assert_eq!(port.poll_interrupt(), None);
        port.write(register, on, 0xf);
        assert!(port.poll_interrupt().is_some(), "{register:#x}");
        assert_eq!(port.poll_interrupt(), None);
    }
}

#[test]
fn its_own_errors_name_itself() {
    let mut port = ready();
    port.report(PortError::CompletionTimeout, false, None);
    assert_eq!(port.read(ROOT_ERROR_STATUS), 0b010_0100);
    assert_eq!(port.read(SOURCE), 0);
    assert_eq!(port.read(0x104), 1 << 14);
    assert!(port.poll_interrupt().is_some());
}

#[test]
fn power_events_come_one_after_the_other() {
    let mut port = ready();
    port.write(0x8c, 1 << 3, 0x1);
    for id in [0x0300, 0x0400] {
        assert!(port.handle_message(Bdf::from_bits(id), MsgCode::PmPme));
    }
    assert_eq!(port.read(0x90), 0b11 << 16 | 0x0300);
    assert!(port.poll_interrupt().is_some());
    port.write(0x90, 1 << 16, 0xf);
    assert_eq!(port.read(0x90), 0b01 << 16 | 0x0400);
    assert!(port.poll_interrupt().is_some());
    port.write(0x90, 1 << 16, 0xf);
    assert_eq!(port.read(0x90) >> 16, 0);
    assert_eq!(port.poll_interrupt(), None);
}

#[test]
fn reset_and_disable_take_the_link_down() {
    let mut port = ready();
    // What software sees of it.
    let is_active = |port: &RootPort| port.read(0x80) >> 29 & 1 == 1;
    assert!(port.is_link_up() && is_active(&port));
    assert_eq!(port.write(0x3c, 1 << 22 | 1 << 17, 0xc), Some(Effect::LinkDown));
    assert!(!port.is_link_up() && !is_active(&port));
    assert_eq!(port.write(0x80, 1 << 4, 0x1), None, "it is down already");
    assert_eq!(port.write(0x3c, 1 << 17, 0xc), None);
    assert!(!port.is_link_up() && !is_active(&port));
    port.write(0x80, 0, 0x1);
    assert!(port.is_link_up() && is_active(&port));
    assert_eq!(port.write(0x80, 1 << 4, 0x1), Some(Effect::LinkDown));
    port.reset(ResetKind::Fundamental);
    assert!(port.is_link_up() && is_active(&port));
}

#[test]
fn retries_are_visible_when_software_says_so() {
    let mut port = port();
    assert_ne!(port.read(0x8c) & 1 << 16, 0, "it can");
    assert!(!port.retry_is_visible());
    port.write(0x8c, 1 << 4, 0x1);
    assert!(port.retry_is_visible());
}

#[test]
fn messages_that_end_elsewhere_are_not_known() {
    assert!(!ready().handle_message(device(), MsgCode::from_byte(0x20)));
}

proptest! {
    #[test]
    fn any_writes_and_messages_leave_it_standing(
        steps in proptest::collection::vec((any::<bool>(), 0u16..1024, any::<u32>(), 0u8..16), 1..300),
    ) {
        let mut port = port();
        for (message, doubleword, value, enables) in steps {
            if message {
                let code = [MsgCode::ErrCor, MsgCode::ErrNonFatal, MsgCode::ErrFatal, MsgCode::PmPme];
                port.handle_message(Bdf::from_bits(doubleword), code[value as usize % 4]);
            } else {
                let before = port.read(doubleword * 4);
                port.write(doubleword * 4, value, enables);
                let after = port.read(doubleword * 4);
                // What hardware says there: Root Status, and whether the link is up.
                let own = match doubleword * 4 {
                    0x90 => u32::MAX,
                    0x80 => 1 << 29,
                    _ => 0,
                };
                prop_assert_eq!((before ^ after) & !lanes(enables) & !own, 0);
            }
            port.poll_interrupt();
        }
        prop_assert!(port.max_payload() <= 512);
    }
}
