//! DMA at the end of the address space.

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
