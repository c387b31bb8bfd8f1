//! Endpoints driven by a root complex over TLPs.

mod bus_master;
mod status;

use super::*;
use crate::testing::*;
use proptest::prelude::*;
use registers::*;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, MsgCode, MsgRouting};

/// A function with memory in BAR 2 that does DMA as the test tells it.
#[derive(Default)]
struct Probe {
    memory: Vec<u8>,
    accesses: Vec<(usize, u64, usize)>,
    done: Vec<ReadDone>,
    resets: Vec<FunctionReset>,
    todo: Vec<Todo>,
}

enum Todo {
    Read(u64, usize, u64),
    Write(u64, Vec<u8>),
    Interrupt(u16),
    Cancel(u64),
}

impl Function for Probe {
    fn read(&mut self, _: &mut Port, _: Duration, bar: usize, offset: u64, data: &mut [u8]) {
        self.accesses.push((bar, offset, data.len()));
        if bar == 2 {
            data.copy_from_slice(&self.memory[offset as usize..][..data.len()]);
        }
    }

    fn write(&mut self, _: &mut Port, _: Duration, bar: usize, offset: u64, data: &[u8]) {
        self.accesses.push((bar, offset, data.len()));
        if bar == 2 {
            self.memory[offset as usize..][..data.len()].copy_from_slice(data);
        }
    }

    fn read_done(&mut self, _: &mut Port, _: Duration, done: ReadDone) {
        self.done.push(done);
    }

    fn reset(&mut self, _: &mut Port, _: Duration, reset: FunctionReset) {
        self.resets.push(reset);
    }

    fn work(&mut self, port: &mut Port, _: Duration) {
        for todo in self.todo.drain(..) {
            match todo {
                Todo::Read(address, len, token) => {
                    port.dma_read(address, len, token, Traffic::Control).unwrap();
                }
                Todo::Write(address, data) => {
                    port.dma_write(address, data, Traffic::Control).unwrap();
                }
                Todo::Interrupt(vector) => port.interrupt(vector),
                Todo::Cancel(token) => port.cancel_reads(|t| t == token),
            }
        }
    }

    fn work_at(&self) -> Option<Duration> {
        None
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

fn layout() -> Layout {
    let bar0 = BarLayout { size: 0x4000, wide: false, prefetchable: false };
    let bar2 = BarLayout { size: 1 << 20, wide: true, prefetchable: true };
    Layout {
        vendor: 0x1b36,
        device: 0x0001,
        subsystem_vendor: 0x1b36,
        subsystem: 0x0002,
        revision: 3,
        class: 0x12_0000,
        serial: 0x0123_4567_89ab_cdef,
        bars: [Some(bar0), None, Some(bar2), None, None, None],
        msix: Some(MsixLayout { vectors: 4, bar: 0, table: 0x2000, pba: 0x3000 }),
        msi: 4,
        max_payload: 512,
        tags: 64,
        max_read_request: 512,
        no_snoop_data: false,
        link_speed: 4,
        link_width: 16,
        ready_after: Duration::from_millis(5),
    }
}

fn root() -> Root<Endpoint<Probe>> {
    let probe = Probe { memory: vec![0; 1 << 20], ..Probe::default() };
    Root::new(Endpoint::new(layout(), probe))
}

impl Root<Endpoint<Probe>> {
    fn probe(&mut self) -> &mut Probe {
        self.device.function_mut()
    }

    fn todo(&mut self, todo: Todo) {
        self.probe().todo.push(todo);
        self.pump();
    }

    fn only_done(&mut self) -> ReadDone {
        let done = std::mem::take(&mut self.probe().done);
        assert_eq!(done.len(), 1);
        done.into_iter().next().unwrap()
    }
}

#[test]
fn the_header_and_the_capability_list_are_as_laid_out() {
    let mut r = root();
    assert_eq!(r.config_read(VENDOR_ID), 0x0001_1b36);
    assert_eq!(r.config_read(REVISION_CLASS), 0x1200_0003);
    assert_eq!(r.config_read(SUBSYSTEM), 0x0002_1b36);
    let mut at = r.config_read(CAPABILITIES) as u16 & 0xff;
    let mut ids = Vec::new();
    while at != 0 {
        let header = r.config_read(at);
        ids.push(header as u8);
        at = (header >> 8) as u16 & 0xff;
    }
    assert_eq!(ids, [0x01, 0x05, 0x10, 0x11]);
    let aer = r.config_read(AER);
    assert_eq!((aer & 0xffff, aer >> 20), (1, u32::from(SERIAL)));
    assert_eq!(r.config_read(SERIAL) & 0xffff, 3);
    assert_eq!(r.config_read(SERIAL + 4), 0x89ab_cdef);
    assert_eq!(r.config_read(SERIAL + 8), 0x0123_4567);
}

#[test]
fn bars_tell_their_size_and_decode_what_they_hold() {
    let mut r = root();
    assert_eq!(r.size_bar(BAR0), (0x4000, false));
    assert_eq!(r.size_bar(BAR0 + 4), (0, false));
    assert_eq!(r.size_bar(BAR0 + 8), (1 << 20, true));
    let bars = r.enable();
    r.post(bars[2] + 5, &[1, 2, 3]);
    assert_eq!(r.read(bars[2] + 4, 5).unwrap(), [0, 1, 2, 3, 0]);
    assert_eq!(r.read(bars[2] + (1 << 20), 4), Err(CplStatus::UnsupportedRequest));
    r.config_write16(COMMAND, 0);
    assert_eq!(r.read(bars[2], 4), Err(CplStatus::UnsupportedRequest));
}

#[test]
fn a_long_read_is_completed_in_pieces_and_comes_back_whole() {
    let mut r = root();
    let bars = r.enable();
    for (at, len) in [(0, 4096), (3, 4000), (127, 2), (1021, 700), (4095, 1)] {
        let want: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
        r.probe().memory[at..at + len].copy_from_slice(&want);
        assert_eq!(r.read(bars[2] + at as u64, len).unwrap(), want, "{len} bytes from {at}");
    }
}

#[test]
fn byte_enables_reach_the_function_and_a_read_of_nothing_does_not() {
    let mut r = root();
    let bars = r.enable();
    let (requester, tag) = (Bdf::from_bits(0), Tag::new(9).unwrap());
    let gaps = ByteEnables { first: 0b1001, last: 0b0101 };
    r.send(Kind::MemWrite {
        requester,
        tag,
        address: bars[2],
        enables: gaps,
        hint: None,
        data: &[1, 2, 3, 4, 5, 6, 7, 8],
    });
    assert_eq!(r.probe().memory[..8], [1, 0, 0, 4, 5, 0, 7, 0]);
    assert_eq!(r.probe().accesses, [(2, 0, 1), (2, 3, 2), (2, 6, 1)]);
    r.probe().accesses.clear();
    let none = ByteEnables { first: 0, last: 0 };
    r.send(Kind::MemRead {
        requester,
        tag,
        address: bars[2],
        length_dw: 1,
        enables: none,
        hint: None,
        locked: false,
    });
    r.pump();
    assert_eq!(r.probe().accesses, []);
    assert_eq!(r.counter("tlps_sent"), r.counter("tlps_received") - 1, "the write has none");
}

#[test]
fn what_no_endpoint_serves_is_an_unsupported_request() {
    let mut r = root();
    let bars = r.enable();
    let (requester, tag) = (Bdf::from_bits(0), Tag::new(1).unwrap());
    let destination = Bdf::from_bits(DEVICE);
    let before = r.counter("unsupported_requests");
    r.send(Kind::ConfigRead {
        type1: true,
        requester,
        tag,
        destination,
        register: 0,
        first_be: 15,
    });
    r.send(Kind::IoRead { requester, tag, address: 0x100, first_be: 15 });
    let enables = ByteEnables::all(1);
    r.send(Kind::MemRead {
        requester,
        tag,
        address: bars[2],
        length_dw: 1,
        enables,
        hint: None,
        locked: true,
    });
    let data = [0; 4];
    r.send(Kind::DeferrableMemWrite {
        requester,
        tag,
        address: bars[2],
        enables,
        hint: None,
        data: &data,
    });
    assert_eq!(r.counter("unsupported_requests"), before + 4);
    let sent = r.counter("tlps_sent");
    r.pump_classes(Classes::ALL);
    assert_eq!(r.counter("tlps_sent"), sent + 4, "each is completed");
    // Another function than 0.
    let other = Bdf::from_bits(DEVICE | 1);
    r.send(Kind::ConfigRead {
        type1: false,
        requester,
        tag,
        destination: other,
        register: 0,
        first_be: 15,
    });
    assert_eq!(r.counter("unsupported_requests"), before + 5);
    assert_eq!(r.config_read(DEVICE_CONTROL) >> 16 & 0x8, 0x8, "Device Status says so");
}

fn pme_turn_off() -> Kind<'static> {
    Kind::Message {
        routing: MsgRouting::Broadcast,
        code: MsgCode::PmeTurnOff,
        requester: Bdf::from_bits(0),
        tag: Tag::new(0).unwrap(),
        fields: [0; 8],
        data: &[],
    }
}

#[test]
fn an_unsupported_write_sends_an_error_message_if_asked_to() {
    let mut r = root();
    r.enable();
    let control = r.config_read(DEVICE_CONTROL) as u16;
    r.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_NON_FATAL | DEVICE_CONTROL_UR);
    r.post(0x7000_0000, &[1, 2, 3, 4]);
    r.pump();
    assert_eq!(r.messages, [MsgCode::ErrNonFatal]);
    assert_eq!(r.config_read(AER_UNCORRECTABLE), 1 << 20);
    assert_eq!(r.config_read(AER_CONTROL) & 0x1f, 20);
    assert_eq!(r.config_read(AER_HEADER_LOG) >> 24, 0x40, "a memory write's first byte");
    r.config_write(AER_UNCORRECTABLE, 1 << 20);
    assert_eq!(r.config_read(AER_UNCORRECTABLE), 0);
    r.send(pme_turn_off());
    r.pump();
    assert_eq!(r.messages.last(), Some(&MsgCode::PmeToAck));
}

#[test]
fn dma_reads_are_split_and_reassembled_in_any_order() {
    let mut r = root();
    r.enable();
    r.set_sizes(256, 128);
    let want = r.fill(1000, 10_000, 0);
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY + 1000, 10_000, 77));
    assert_eq!(r.held.len(), 64, "as many as there are tags");
    while !r.held.is_empty() {
        let last = r.held.len() / 2;
        r.answer(last);
        r.pump();
    }
    let done = r.only_done();
    assert_eq!((done.token, done.result), (77, Ok(want)));
    assert_eq!(done.timing.requests, r.reads.len() as u32);
    assert_eq!(done.timing.peak, 64);
    assert!(r.reads.iter().all(|&len| len <= 128));
}

#[test]
fn dma_writes_are_split_at_the_payload_size_and_keep_every_byte() {
    let mut r = root();
    r.enable();
    r.set_sizes(256, 512);
    let want: Vec<u8> = (0..9_001_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    r.todo(Todo::Write(MEMORY + 4093, want.clone()));
    assert_eq!(&r.memory[4093..][..9_001], &want);
    assert_eq!((r.memory[4092], r.memory[4093 + 9_001]), (0, 0));
}

#[test]
fn extended_tags_off_means_32() {
    let mut r = root();
    r.enable();
    r.set_sizes(128, 128);
    let control = r.config_read(DEVICE_CONTROL) as u16;
    r.config_write16(DEVICE_CONTROL, control & !DEVICE_CONTROL_EXTENDED_TAG);
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 100_000, 1));
    assert_eq!(r.held.len(), 32);
    assert!(r.held.iter().all(|read| read.tag.get() < 32));
}

#[test]
fn an_interrupt_follows_the_writes_and_nothing_overtakes_them() {
    let mut r = root();
    let bars = r.enable();
    r.enable_msix(bars[0] + 0x2000, 4);
    let tag = Tag::new(3).unwrap();
    r.probe().todo.push(Todo::Write(MEMORY, vec![1; 300]));
    r.probe().todo.push(Todo::Interrupt(2));
    r.probe().todo.push(Todo::Read(MEMORY, 4, 1));
    assert_eq!(r.pump_classes(Classes::NONE), []);
    r.send(Kind::ConfigRead {
        type1: false,
        requester: Bdf::from_bits(0),
        tag,
        destination: Bdf::from_bits(DEVICE),
        register: 0,
        first_be: 15,
    });
    let without_posted = Classes::ALL.without(Class::Posted);
    assert_eq!(r.pump_classes(without_posted), [], "reads and completions wait");
    let came = r.pump_classes(Classes::ALL);
    use Class::{Completion as C, NonPosted as N, Posted as P};
    assert_eq!(came, [P, P, P, P, N, C]);
    assert_eq!(r.interrupts, [0x42]);
    // Posted TLPs do not wait for reads that may not leave.
    r.probe().todo.push(Todo::Read(MEMORY, 4, 2));
    r.probe().todo.push(Todo::Write(MEMORY, vec![1; 4]));
    assert_eq!(r.pump_classes(Classes::NONE.with(P)), [P]);
    assert_eq!(r.pump_classes(Classes::ALL), [N]);
}

#[test]
fn a_masked_vector_pends_and_is_sent_once_when_unmasked() {
    let mut r = root();
    let bars = r.enable();
    r.todo(Todo::Interrupt(1));
    assert_eq!(r.counter("interrupts_lost"), 1, "MSI-X is off");
    let table = bars[0] + 0x2000;
    r.enable_msix(table, 4);
    r.write32(table + 16 + 12, 1);
    r.todo(Todo::Interrupt(1));
    r.todo(Todo::Interrupt(1));
    r.todo(Todo::Interrupt(9));
    assert_eq!(r.interrupts, []);
    assert_eq!(r.read64(bars[0] + 0x3000), 2);
    r.write32(table + 16 + 12, 0);
    assert_eq!(r.interrupts, [0x41]);
    assert_eq!(r.read64(bars[0] + 0x3000), 0);
    r.config_write16(MSIX_CONTROL, MSIX_ENABLE | MSIX_FUNCTION_MASK);
    r.todo(Todo::Interrupt(3));
    r.config_write16(MSIX_CONTROL, MSIX_ENABLE);
    assert_eq!(r.interrupts, [0x41, 0x43]);
}

#[test]
fn msi_sends_as_many_messages_as_were_granted_and_masks_each() {
    let mut r = root();
    r.enable();
    r.config_write(MSI_ADDRESS, INTERRUPTS as u32);
    r.config_write16(MSI_DATA, 0x60);
    r.config_write16(MSI_CONTROL, MSI_ENABLE | 1 << 4);
    for vector in 0..4 {
        r.todo(Todo::Interrupt(vector));
    }
    assert_eq!(r.interrupts, [0x60, 0x61, 0x60, 0x61]);
    r.config_write(MSI_MASK, 2);
    r.todo(Todo::Interrupt(1));
    assert_eq!(r.config_read(MSI_PENDING), 2);
    r.config_write(MSI_MASK, 0);
    assert_eq!(r.interrupts.len(), 5);
}

#[test]
fn a_function_reset_in_mid_dma_forgets_it_and_takes_no_late_data() {
    let mut r = root();
    r.enable();
    r.set_sizes(256, 128);
    r.fill(0, 100_000, 1);
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 100_000, 1));
    let control = r.config_read(DEVICE_CONTROL) as u16;
    assert_eq!(r.config_read(DEVICE_CONTROL) >> 16 & 0x20, 0x20, "transactions pending");
    r.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_FLR);
    assert_eq!(r.probe().resets, [FunctionReset::FunctionLevel]);
    assert_eq!(r.try_config_read(COMMAND), Err(CplStatus::ConfigRetry));
    r.now += Duration::from_millis(5);
    assert_eq!(r.config_read(COMMAND) & 0xffff, 0);
    assert_eq!(r.config_read(DEVICE_CONTROL) & 0x80e0, 0x20, "payload size stays");
    // The next DMA is on other tags than those whose completions are still under way.
    r.enable();
    let late: Vec<HeldRead> = r.held.drain(..).collect();
    r.max_read = 512;
    r.todo(Todo::Read(MEMORY, 64, 2));
    assert_eq!(r.held.len(), 0, "all 64 tags are resting");
    for read in late {
        r.held.push_back(read);
        let last = r.held.len() - 1;
        r.answer(last);
    }
    assert_eq!(r.counter("stale_completions"), 128, "64 requests in two pieces each");
    r.answers = Answers::Split;
    r.pump();
    assert_eq!(r.only_done().token, 2);
}

#[test]
fn conventional_resets_forget_everything() {
    let mut r = root();
    r.enable();
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 64, 1));
    r.config_write(AER_SEVERITY, 0);
    let now = r.now;
    r.device.handle_reset(now, ResetKind::HotReset);
    r.now += Duration::from_secs(1);
    assert_eq!(r.config_read(COMMAND) & 0xffff, 0);
    assert_eq!(r.config_read(AER_SEVERITY), 0, "sticky");
    r.answer(0);
    assert_eq!(r.counter("unexpected_completions"), 1);
    r.device.handle_reset(r.now, ResetKind::Perst { asserted: true });
    r.device.handle_reset(r.now, ResetKind::HotReset);
    let before = r.counter("dropped_in_reset");
    r.post(0, &[0; 4]);
    assert_eq!(r.counter("dropped_in_reset"), before + 1);
    r.device.handle_reset(r.now, ResetKind::Perst { asserted: false });
    r.now += Duration::from_secs(1);
    assert_ne!(r.config_read(AER_SEVERITY), 0);
    r.device.handle_reset(r.now, ResetKind::Power { on: false });
    r.device.handle_reset(r.now, ResetKind::Perst { asserted: false });
    assert_eq!(r.probe().resets.last(), Some(&FunctionReset::Power));
    r.post(0, &[0; 4]);
    assert_eq!(r.counter("dropped_in_reset"), before + 2);
    r.device.handle_reset(r.now, ResetKind::Power { on: true });
    r.now += Duration::from_secs(1);
    assert_eq!(r.config_read(VENDOR_ID), 0x0001_1b36);
}

/// PERST# is a wire: power that goes and comes does not release it.
#[test]
fn a_device_that_gets_power_under_perst_stays_in_reset() {
    let mut r = root();
    r.device.handle_reset(r.now, ResetKind::Power { on: false });
    r.device.handle_reset(r.now, ResetKind::Perst { asserted: true });
    r.device.handle_reset(r.now, ResetKind::Power { on: true });
    let before = r.counter("dropped_in_reset");
    r.post(0, &[0; 4]);
    assert_eq!(r.counter("dropped_in_reset"), before + 1);
    r.device.handle_reset(r.now, ResetKind::Perst { asserted: false });
    r.now += Duration::from_secs(1);
    assert_eq!(r.config_read(VENDOR_ID), 0x0001_1b36);
}

#[test]
fn each_way_that_a_read_can_fail_has_its_error() {
    use DmaError::*;
    for (answers, error) in [
        (Answers::Status(CplStatus::UnsupportedRequest), UnsupportedRequest),
        (Answers::Status(CplStatus::CompleterAbort), CompleterAbort),
        (Answers::Status(CplStatus::ConfigRetry), Malformed),
        (Answers::Status(CplStatus::Unknown(7)), UnsupportedRequest),
        (Answers::Poisoned, Poisoned),
    ] {
        let mut r = root();
        r.enable();
        r.answers = answers;
        r.todo(Todo::Read(MEMORY, 3000, 5));
        assert_eq!(r.only_done().result, Err(error));
        r.answers = Answers::Split;
        r.todo(Todo::Read(MEMORY, 3000, 6));
        assert!(r.only_done().result.is_ok(), "after {answers:?}");
    }
}

#[test]
fn a_completion_that_does_not_come_times_out_and_its_tag_rests_until_it_does() {
    let mut r = root();
    r.enable();
    r.config_write16(DEVICE_CONTROL_2, 0b0010);
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 64, 1));
    let read = r.held[0];
    let deadline = r.device.poll_timeout().unwrap();
    assert_eq!(deadline, r.now + Duration::from_millis(10));
    r.now = deadline - Duration::from_nanos(1);
    r.device.handle_timeout(r.now);
    assert_eq!(r.probe().done, []);
    r.now = deadline;
    r.device.handle_timeout(r.now);
    assert_eq!(r.only_done().result, Err(DmaError::Timeout));
    assert_eq!(r.config_read(AER_UNCORRECTABLE) >> 14 & 1, 1);
    // No request gets that tag now.
    r.held.clear();
    r.todo(Todo::Read(MEMORY, 512 * 63, 2));
    assert!(r.held.iter().all(|held| held.tag != read.tag));
    assert_eq!(r.held.len(), 63);
    r.answer_late(read);
    assert_eq!(r.counter("stale_completions"), 1);
}

impl Root<Endpoint<Probe>> {
    fn answer_late(&mut self, read: HeldRead) {
        self.send_completion(&read, CplStatus::Success, read.address, read.len, read.len);
    }
}

#[test]
fn reads_fail_at_once_when_every_tag_timed_out() {
    let mut r = root();
    r.enable();
    r.config_write16(DEVICE_CONTROL_2, 0b0001);
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 512 * 100, 1));
    r.now += Duration::from_millis(1);
    r.device.handle_timeout(r.now);
    assert_eq!(r.only_done().result, Err(DmaError::Timeout));
    r.todo(Todo::Read(MEMORY, 64, 2));
    assert_eq!(r.only_done().result, Err(DmaError::NoTags));
}

#[test]
fn completions_that_fit_no_request_are_refused() {
    let mut r = root();
    r.enable();
    r.set_sizes(256, 512);
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 256, 1));
    let read = r.held.pop_front().unwrap();
    let wrong_tag = HeldRead { tag: Tag::new(50).unwrap(), ..read };
    r.answer_late(wrong_tag);
    let wrong_requester = HeldRead { requester: Bdf::from_bits(0x0401), ..read };
    r.answer_late(wrong_requester);
    assert_eq!(r.counter("unexpected_completions"), 2);
    assert_eq!(r.probe().done, []);
    // Not the bytes that come next.
    r.send_completion(&read, CplStatus::Success, read.address + 64, 192, 64);
    assert_eq!(r.only_done().result, Err(DmaError::Malformed));
    // The rest of it goes nowhere.
    r.answer_late(read);
    assert_eq!(r.counter("stale_completions"), 1);
}

#[test]
fn a_second_answer_to_one_request_is_unexpected() {
    let mut r = root();
    r.enable();
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 64, 1));
    let read = r.held.pop_front().unwrap();
    r.answer_late(read);
    r.answer_late(read);
    assert_eq!(r.counter("unexpected_completions"), 1);
    assert!(r.only_done().result.is_ok());
}

#[test]
fn a_cancelled_read_says_nothing_and_frees_its_tags() {
    let mut r = root();
    r.enable();
    r.answers = Answers::Held;
    r.todo(Todo::Read(MEMORY, 512 * 100, 1));
    r.todo(Todo::Cancel(1));
    r.answers = Answers::Split;
    while !r.held.is_empty() {
        r.answer(0);
    }
    r.pump();
    assert_eq!(r.probe().done, []);
    assert_eq!(r.reads.len(), 64, "no request after the cancel");
    r.todo(Todo::Read(MEMORY, 512 * 100, 2));
    assert_eq!(r.only_done().token, 2);
}

#[test]
fn requests_beyond_the_credits_are_counted_and_dropped() {
    let mut r = root();
    r.enable();
    for i in 0..COMPLETION_QUEUE + 3 {
        assert_eq!(r.device.can_take(Class::NonPosted), i < COMPLETION_QUEUE);
        r.send(Kind::ConfigRead {
            type1: false,
            requester: Bdf::from_bits(0),
            tag: Tag::new(i as u16).unwrap(),
            destination: Bdf::from_bits(DEVICE),
            register: 0,
            first_be: 15,
        });
    }
    assert_eq!(r.counter("receiver_overflow"), 3);
    assert_eq!(r.pump_classes(Classes::ALL).len(), COMPLETION_QUEUE);
}

proptest! {
    #[test]
    fn no_bytes_make_an_endpoint_panic(
        tlps in prop::collection::vec(tlp_bytes(), 1..60),
        split in any::<bool>(),
    ) {
        let mut r = root();
        let bars = r.enable();
        r.enable_msix(bars[0] + 0x2000, 4);
        r.probe().todo.push(Todo::Read(MEMORY, 5000, 1));
        r.probe().todo.push(Todo::Write(MEMORY, vec![1; 500]));
        let mut buf = vec![0; tlp_codec::tlp::MAX_TLP];
        for tlp in tlps {
            r.device.handle_tlp(r.now, &tlp);
            if split {
                r.device.poll_tlp(r.now, &mut buf);
            }
            r.now += Duration::from_millis(7);
            r.device.handle_timeout(r.now);
        }
        while r.device.poll_tlp(r.now, &mut buf).is_some() {}
    }
}

/// Bytes that are often nearly a TLP for this device.
pub(crate) fn tlp_bytes() -> impl Strategy<Value = Vec<u8>> {
    let first = prop::sample::select(vec![
        0x00, 0x20, 0x40, 0x60, 0x04, 0x44, 0x05, 0x45, 0x02, 0x42, 0x0a, 0x4a, 0x01, 0x30, 0x34,
        0x70, 0x74, 0x4c, 0x4d, 0x4e, 0x5b, 0x90, 0x80,
    ]);
    let address = prop::sample::select(vec![
        0x8000_0000_u64,
        0x8000_0014,
        0x8000_0100,
        0x8000_1000,
        0x8000_2000,
        0x40_0000_0000,
        0x40_000f_f000,
        0x0300_0004,
        0x0300_0078,
        0x0300_0010,
    ]);
    (first, any::<[u8; 7]>(), address, 0_u64..64, 1_u8..20, any::<bool>()).prop_map(
        |(first, rest, address, at, dwords, any_length)| {
            let mut tlp = vec![first];
            tlp.extend_from_slice(&rest);
            if !any_length {
                (tlp[1], tlp[2], tlp[3]) = (0, 0, dwords);
                (tlp[4], tlp[5]) = (3, 0);
            }
            let address = address + at * 4;
            if first & 0x20 != 0 {
                tlp.extend_from_slice(&((address >> 32) as u32).to_be_bytes());
            }
            tlp.extend_from_slice(&(address as u32).to_be_bytes());
            if first & 0x40 != 0 {
                tlp.extend((0..usize::from(dwords) * 4).map(|i| rest[i % 7]));
            }
            tlp
        },
    )
}
