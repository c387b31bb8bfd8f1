//! DMA at the end of the address space, and its order where memory is mixed.

use super::*;

/// The data of a read's completions, which keep to the payload size; `None` when it is refused.
fn data_of(completions: &[Vec<u8>], address: u64) -> Option<Vec<u8>> {
    let (mut got, mut left) = (Vec::new(), Vec::new());
    for completion in completions {
        let Kind::Completion { status, byte_count, lower_address, data, .. } =
            Repr::from_bytes(completion).unwrap().kind
        else {
            panic!("not a completion")
        };
        if status != CplStatus::Success {
            assert_eq!((status, completions.len()), (CplStatus::UnsupportedRequest, 1));
            return None;
        }
        assert!(data.len() <= 128);
        assert_eq!(lower_address, (address + got.len() as u64) as u8 & 0x7f);
        left.push(usize::from(byte_count) + got.len());
        got.extend_from_slice(data);
    }
    assert!(left.iter().all(|end| *end == got.len()), "{left:?}");
    Some(got)
}

fn page() -> Vec<u8> {
    (0..0x1000).map(|n| ((n * 7) >> 4) as u8).collect()
}

#[test]
fn reads_of_the_last_page_are_served_where_it_is_mapped() {
    for len in [4, 512, 4096] {
        let mut bench = Bench::new(&VmdConfig::default());
        let address = u64::MAX - len as u64 + 1;
        bench.below_sends(mem_read(address, len, 1));
        assert_eq!(data_of(&bench.completions(), address), None, "{len}: nothing is there");
        assert_eq!(bench.adapter.counters().unsupported, 1);
        bench.machine.last = Some(Last::Mapped(page()));
        bench.below_sends(mem_read(address, len, 2));
        let wanted = &page()[0x1000 - len..];
        assert_eq!(data_of(&bench.completions(), address).as_deref(), Some(wanted), "{len}");
        assert!(!bench.adapter.may_complete());
    }
}

#[test]
fn reads_of_the_last_page_are_served_by_message() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.last = Some(Last::ByMessage);
    bench.below_sends(mem_read(LAST, 4096, 1));
    let (token, address, len) = bench.machine.asked.pop_front().unwrap();
    assert_eq!((address, len), (LAST, 4096));
    bench.adapter.handle_memory(token, Ok(&page()));
    assert_eq!(data_of(&bench.completions(), LAST), Some(page()));
}

#[test]
fn writes_to_the_last_page_are_taken_where_it_is_mapped() {
    let data = [0xa5; 512];
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_write(u64::MAX - 511, &data));
    assert_eq!(bench.adapter.counters().writes_dropped, 1);
    bench.machine.last = Some(Last::Mapped(page()));
    bench.below_sends(mem_write(u64::MAX - 511, &data));
    bench.machine.last = Some(Last::ByMessage);
    bench.below_sends(mem_write(u64::MAX - 511, &data));
    assert_eq!(bench.adapter.counters().writes_dropped, 1);
    assert_eq!(bench.machine.written.last().unwrap(), &(u64::MAX - 511, data.to_vec()));
}

/// A request goes over no 4 KB boundary, and so not over the end either.
#[test]
fn what_goes_over_the_end_of_the_address_space_is_malformed() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.last = Some(Last::Mapped(page()));
    let before = bench.machine.memory.clone();
    send_at(&mut bench, u64::MAX - 3, mem_write(LAST, &[0xee; 8]));
    // With holes, and so in several parts.
    let mut write = mem_write(LAST, &[0xee; 8]);
    let Kind::MemWrite { enables, .. } = &mut write else { panic!() };
    *enables = ByteEnables { first: 0b0101, last: 0b1010 };
    send_at(&mut bench, u64::MAX - 3, write);
    send_at(&mut bench, u64::MAX - 3, mem_read(LAST, 8, 1));
    assert_eq!(bench.adapter.counters().malformed, 3);
    assert!(bench.completions().is_empty());
    assert_eq!(bench.machine.memory, before);
    assert!(matches!(&bench.machine.last, Some(Last::Mapped(bytes)) if *bytes == page()));
}

/// A TLP at another address than the codec would build it for.
fn send_at(bench: &mut Bench, address: u64, kind: Kind<'_>) {
    let mut buf = [0; BUFFER];
    let length = Repr::new(kind).emit(&mut buf).unwrap();
    buf[8..16].copy_from_slice(&address.to_be_bytes());
    bench.adapter.handle_tlp(bench.now, &buf[..length], &mut bench.machine);
}

/// The machine does what the messages say, oldest first, and answers.
fn settle(bench: &mut Bench) {
    loop {
        let Bench { adapter, machine, .. } = bench;
        let write = machine.unanswered.front().copied();
        let read =
            machine.asked.front().copied().filter(|(token, ..)| write.is_none_or(|w| *token < w));
        if let Some((token, address, len)) = read {
            machine.asked.pop_front();
            let data = machine.bytes(address, len).to_vec();
            adapter.handle_memory(token, Ok(&data));
        } else if let Some(token) = write {
            let (address, data) =
                machine.written[machine.written.len() - machine.unanswered.len()].clone();
            machine.unanswered.pop_front();
            if address < NEAR + FAR {
                machine.bytes(address, data.len()).copy_from_slice(&data);
            }
            adapter.handle_memory(token, Ok(&[]));
        } else {
            return;
        }
        adapter.handle_guest(machine);
    }
}

impl Machine {
    /// Memory, however it is reached.
    fn bytes(&mut self, address: u64, len: usize) -> &mut [u8] {
        match address.checked_sub(NEAR) {
            Some(at) => &mut self.far[at as usize..][..len],
            None => &mut self.memory[address as usize..][..len],
        }
    }
}

#[test]
fn a_write_to_mapped_memory_passes_none_by_message() {
    for room in [usize::MAX, 0] {
        let mut bench = Bench::new(&VmdConfig::default());
        bench.machine.room = room;
        let before = bench.machine.memory.clone();
        bench.below_sends(mem_write(NEAR, &[1; 4]));
        bench.below_sends(mem_write(0x100, &[2; 4]));
        bench.below_sends(mem_write(0x100, &[3; 4]));
        assert_eq!(bench.machine.memory, before, "the data may still be on its way");
        bench.machine.room = usize::MAX;
        bench.adapter.handle_guest(&mut bench.machine);
        let order: Vec<u64> = bench.machine.written.iter().map(|(address, _)| *address).collect();
        assert_eq!(order, [NEAR, 0x100, 0x100]);
        settle(&mut bench);
        assert_eq!(
            (&bench.machine.far[..4], &bench.machine.memory[0x100..0x104]),
            (&[1; 4][..], &[3; 4][..])
        );
        // With all of that done, at once again.
        bench.below_sends(mem_write(0x100, &[4; 4]));
        assert_eq!(bench.machine.memory[0x100..0x104], [4; 4]);
        assert_eq!(bench.adapter.counters().writes_by_message, 3);
    }
}

#[test]
fn a_read_of_mapped_memory_passes_no_write_by_message() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.machine.room = 0;
    bench.below_sends(mem_write(NEAR, &[1; 4]));
    bench.below_sends(mem_write(0x100, &[2; 4]));
    bench.below_sends(mem_read(0x100, 4, 1));
    assert!(bench.completions().is_empty());
    bench.machine.room = usize::MAX;
    bench.adapter.handle_guest(&mut bench.machine);
    assert!(bench.completions().is_empty(), "the writes before it are not done");
    settle(&mut bench);
    assert_eq!(data_of(&bench.completions(), 0x100), Some(vec![2; 4]));
    bench.below_sends(mem_read(0x100, 4, 1));
    assert_eq!(data_of(&bench.completions(), 0x100), Some(vec![2; 4]), "at once");
}

#[test]
fn what_waits_for_no_memory_holds_up_no_mapped_memory() {
    for room in [usize::MAX, 0] {
        let mut bench = Bench::new(&VmdConfig::default());
        bench.machine.room = room;
        bench.below_sends(mem_write(0xfee0_1000, &0x42_u32.to_le_bytes()));
        bench.below_sends(mem_write(0x100, &[2; 4]));
        assert_eq!(bench.machine.memory[0x100..0x104], [2; 4]);
        bench.below_sends(mem_read(0x100, 4, 1));
        assert_eq!(bench.completions().len(), 1);
    }
}

#[test]
fn mapped_memory_is_reached_at_once_again_whatever_ended_the_writes_by_message() {
    let mut bench = Bench::new(&VmdConfig::default());
    let write = |bench: &mut Bench| bench.below_sends(mem_write(NEAR, &[1; 12]));
    // A message that the machine never takes, one that it refuses, a reset.
    bench.machine.longest = 8;
    write(&mut bench);
    bench.below_sends(mem_write(0x100, &[2; 4]));
    assert_eq!(bench.machine.memory[0x100..0x104], [2; 4]);
    bench.machine.longest = usize::MAX;
    write(&mut bench);
    let token = bench.machine.unanswered.pop_front().unwrap();
    bench.adapter.handle_memory(token, Err(()));
    bench.below_sends(mem_write(0x100, &[3; 4]));
    assert_eq!(bench.machine.memory[0x100..0x104], [3; 4]);
    write(&mut bench);
    bench.adapter.handle_reset();
    assert!(bench.adapter.posted.is_done());
}

#[test]
fn nothing_is_nothing_behind_a_write_by_message_too() {
    let mut bench = Bench::new(&VmdConfig::default());
    bench.below_sends(mem_write(NEAR, &[1; 4]));
    bench.below_sends(mem_write(0x5000_0000, &[2; 4]));
    bench.below_sends(mem_read(0x5000_0000, 4, 1));
    assert_eq!(bench.adapter.counters().writes_dropped, 1);
    assert_eq!(data_of(&bench.completions(), 0), None);
}
