//! Registers in which errors, power and resets are seen.

use super::*;
use crate::testing::DEVICE;
use tlp_codec::tlp::{MAX_TLP, Repr};

impl Root<Endpoint<Probe>> {
    fn send_poisoned(&mut self, kind: Kind) {
        let mut repr = Repr::new(kind);
        repr.poisoned = true;
        let mut buf = [0; MAX_TLP];
        let len = repr.emit(&mut buf).unwrap();
        self.device.handle_tlp(self.now, &buf[..len]);
    }

    fn status(&mut self) -> u16 {
        (self.config_read(COMMAND) >> 16) as u16
    }

    fn clear_status(&mut self) {
        self.config_write16(STATUS, 0xffff);
        assert_eq!(self.status(), STATUS_CAPABILITIES);
    }

    fn first_error(&mut self) -> u32 {
        self.config_read(AER_CONTROL) & 0x1f
    }
}

/// An unsupported request that is posted, and one that is not.
fn unsupported(r: &mut Root<Endpoint<Probe>>, posted: bool) {
    let requester = Bdf::from_bits(0);
    let (tag, address, enables) = (Tag::new(1).unwrap(), 0x7000_0000, ByteEnables::all(1));
    r.send(if posted {
        Kind::MemWrite { requester, tag, address, enables, hint: None, data: &[0; 4] }
    } else {
        Kind::MemRead { requester, tag, address, length_dw: 1, enables, hint: None, locked: false }
    });
    r.pump();
}

const UNSUPPORTED: u32 = 1 << 20;
const MALFORMED: u32 = 1 << 18;
const POISONED: u32 = 1 << 12;

/// A pointer whose error was cleared is over, also when the same error comes again and is masked,
/// or is masked as an advisory one.
#[test]
fn no_masked_error_brings_an_old_pointer_back() {
    for advisory in [false, true] {
        let mut r = root();
        r.enable();
        unsupported(&mut r, true);
        assert_eq!((r.first_error(), r.config_read(AER_HEADER_LOG) >> 24), (20, 0x40));
        r.config_write(AER_UNCORRECTABLE, UNSUPPORTED);
        if !advisory {
            r.config_write(AER_UNCORRECTABLE_MASK, UNSUPPORTED);
        }
        unsupported(&mut r, !advisory);
        let logged = if advisory { 0 } else { UNSUPPORTED };
        assert_eq!(r.config_read(AER_UNCORRECTABLE), logged, "advisory {advisory}");
        // The next one is the first.
        r.device.handle_tlp(r.now, &[0; 3]);
        assert_eq!(r.config_read(AER_UNCORRECTABLE), logged | MALFORMED);
        assert_eq!((r.first_error(), r.config_read(AER_HEADER_LOG)), (18, 0));
    }
}

#[test]
fn an_advisory_error_is_logged_unless_its_uncorrectable_bit_is_masked() {
    for masked in [false, true] {
        let mut r = root();
        r.enable();
        let control = r.config_read(DEVICE_CONTROL) as u16;
        r.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_CORRECTABLE | DEVICE_CONTROL_UR);
        r.config_write(AER_CORRECTABLE_MASK, 0);
        r.config_write(AER_UNCORRECTABLE_MASK, if masked { UNSUPPORTED } else { 0 });
        unsupported(&mut r, false);
        assert_eq!(r.config_read(AER_UNCORRECTABLE), UNSUPPORTED);
        assert_eq!(r.first_error(), if masked { 0 } else { 20 });
        assert_eq!(r.messages, [MsgCode::ErrCor]);
    }
}

#[test]
fn whatever_comes_poisoned_is_a_detected_parity_error() {
    let mut r = root();
    let bars = r.enable();
    let (requester, tag) = (Bdf::from_bits(0), Tag::new(1).unwrap());
    let write = |address| {
        let (enables, data) = (ByteEnables::all(1), &[1; 4]);
        Kind::MemWrite { requester, tag, address, enables, hint: None, data }
    };
    let config = Kind::ConfigWrite {
        type1: false,
        requester,
        tag,
        destination: Bdf::from_bits(DEVICE),
        register: CACHE_LINE,
        first_be: 1,
        data: &[1; 4],
    };
    // Those that nobody serves, too.
    for kind in [write(bars[2]), write(0x7000_0000), config] {
        r.clear_status();
        r.send_poisoned(kind);
        r.pump();
        assert_eq!(r.status() & !STATUS_CAPABILITIES, STATUS_DETECTED_PARITY);
    }
    assert_eq!((r.probe().memory[0], r.config_read(CACHE_LINE) as u8), (0, 0));
    r.config_write16(COMMAND, COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_PARITY);
    r.clear_status();
    r.send_poisoned(write(bars[2]));
    assert_eq!(r.status() & !STATUS_CAPABILITIES, STATUS_DETECTED_PARITY, "no completion of ours");
}

#[test]
fn a_poisoned_completion_is_a_master_data_parity_error_where_that_is_wanted() {
    for (parity, bits) in [(0, 0), (COMMAND_PARITY, STATUS_MASTER_PARITY)] {
        let mut r = root();
        r.enable();
        r.config_write16(COMMAND, COMMAND_MEMORY | COMMAND_BUS_MASTER | parity);
        r.answers = Answers::Poisoned;
        r.todo(Todo::Read(MEMORY, 64, 1));
        assert_eq!(r.only_done().result, Err(DmaError::Poisoned));
        assert_eq!(r.status() & !STATUS_CAPABILITIES, STATUS_DETECTED_PARITY | bits);
    }
}

#[test]
fn a_power_state_that_is_not_there_is_discarded() {
    let mut r = root();
    let bars = r.enable();
    for (written, state) in [(1, PM_D0), (2, PM_D0), (3, PM_D3_HOT), (2, PM_D3_HOT), (0, PM_D0)] {
        r.config_write16(PM_CONTROL, written);
        assert_eq!(r.config_read(PM_CONTROL) as u16, PM_NO_SOFT_RESET | state, "D{written}");
        assert_eq!(r.read(bars[2], 4).is_ok(), state == PM_D0);
    }
}

/// Set_Slot_Power_Limit, of 14bh.
fn power_limit() -> Kind<'static> {
    Kind::Message {
        routing: MsgRouting::Local,
        code: MsgCode::SetSlotPowerLimit,
        requester: Bdf::from_bits(0),
        tag: Tag::new(0).unwrap(),
        fields: [0; 8],
        data: &[0x4b, 1, 0, 0],
    }
}

fn limit(r: &mut Root<Endpoint<Probe>>) -> u32 {
    r.config_read(DEVICE_CAPABILITIES) >> 18 & 0x3ff
}

#[test]
fn a_poisoned_power_limit_is_reported_and_not_used() {
    let mut r = root();
    r.enable();
    r.config_write(AER_CORRECTABLE_MASK, 0);
    r.send_poisoned(power_limit());
    r.pump();
    assert_eq!((limit(&mut r), r.config_read(AER_UNCORRECTABLE)), (0, POISONED));
    assert_eq!(r.status() & !STATUS_CAPABILITIES, STATUS_DETECTED_PARITY);
}

#[test]
fn a_function_reset_leaves_the_slots_power_limit() {
    let mut r = root();
    r.enable();
    r.send(power_limit());
    assert_eq!(limit(&mut r), 0x14b);
    let control = r.config_read(DEVICE_CONTROL) as u16;
    r.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_FLR);
    r.now += Duration::from_millis(5);
    assert_eq!(limit(&mut r), 0x14b);
    r.device.handle_reset(r.now, ResetKind::HotReset);
    r.now += Duration::from_millis(5);
    assert_eq!(limit(&mut r), 0, "the port tells it again");
}
