//! What the client asks about the device, and requests that no device has a part in.

use crate::bench::Bench;
use crate::client::*;
use crate::errno::*;
use std::os::fd::AsFd;

#[test]
fn the_device() {
    let mut bench = Bench::new();
    let got = bench.call(GET_INFO, &info(0), &[]);
    // 16 bytes; can be reset, PCI; nine regions, five kinds of interrupts.
    assert_eq!(got.payload, bytes().u32(16).u32(3).u32(9).u32(5).0);
}

#[test]
fn the_regions() {
    let mut bench = Bench::new();
    for (index, flags, size) in
        [(0, 3, 0x10_0000), (1, 0, 0), (2, 2, 0x1000), (6, 1, 0x800), (7, 3, 0x1000), (8, 0, 0)]
    {
        let got = bench.call(GET_REGION_INFO, &region_info(index), &[]);
        assert_eq!(got.payload, bytes().u32(32).u32(flags).u32(index).u32(0).u64(size).u64(0).0);
    }
    for index in [9, 10, 0x8000_0000, u32::MAX] {
        assert_eq!(bench.errno(GET_REGION_INFO, &region_info(index), &[]), EINVAL);
    }
}

#[test]
fn the_interrupts() {
    let mut bench = Bench::new();
    // Signalled by eventfds; maskable; INTx masks itself.
    for (index, flags, count) in [(0, 7, 1), (1, 3, 4), (2, 3, 64), (3, 1, 1), (4, 1, 1)] {
        let got = bench.call(GET_IRQ_INFO, &info(index), &[]);
        assert_eq!(got.payload, bytes().u32(16).u32(flags).u32(index).u32(count).0);
    }
    for index in [5, u32::MAX] {
        assert_eq!(bench.errno(GET_IRQ_INFO, &info(index), &[]), EINVAL);
    }
}

#[test]
fn no_region_has_file_descriptors_for_its_accesses() {
    let mut bench = Bench::new();
    let got = bench.call(GET_REGION_IO_FDS, &info(0), &[]);
    assert_eq!(got.payload, bytes().u32(16).u32(0).u32(0).u32(0).0);
    assert!(got.fds.is_empty());
    let wrong = [
        info(9),
        // A region that is not there.
        info(1),
        bytes().u32(16).u32(1).u32(0).u32(0).0,
        bytes().u32(16).u32(0).u32(0).u32(1).0,
    ];
    for payload in wrong {
        assert_eq!(bench.errno(GET_REGION_IO_FDS, &payload, &[]), EINVAL);
    }
}

/// For each request with an `argsz`: its payload with that of 0, of one too few, and cut short.
#[test]
fn what_is_too_short_is_invalid() {
    let mut bench = Bench::new();
    for (command, right) in [
        (DMA_MAP, dma_map(3, 0, 0x10_0000, 0x1000)),
        (DMA_UNMAP, dma_unmap(0, 0x10_0000, 0x1000)),
        (GET_INFO, info(0)),
        (GET_REGION_INFO, region_info(0)),
        (GET_REGION_IO_FDS, info(0)),
        (GET_IRQ_INFO, info(0)),
        (SET_IRQS, set_irqs(0x21, 2, 0, 0, &[])),
    ] {
        for argsz in [0, right.len() as u32 - 1] {
            let mut payload = right.clone();
            payload[..4].copy_from_slice(&argsz.to_ne_bytes());
            assert_eq!(bench.errno(command, &payload, &[]), EINVAL, "{command}, argsz {argsz}");
        }
        for len in [0, 1, 4, right.len() - 1] {
            assert_eq!(bench.errno(command, &right[..len], &[]), EINVAL, "{command}, {len} bytes");
        }
        // Room for more is no fault, and bytes that a later version has do not disturb.
        let mut more = [&right[..], &[0; 8]].concat();
        more[0] += 8;
        assert_eq!(bench.errno(command, &more, &[]), 0, "{command}");
    }
}

#[test]
fn a_file_descriptor_where_none_belongs_is_invalid() {
    let mut bench = Bench::new();
    let fd = eventfd();
    for (command, payload) in [
        (DMA_UNMAP, dma_unmap(2, 0, 0)),
        (GET_INFO, info(0)),
        (GET_REGION_INFO, region_info(0)),
        (GET_REGION_IO_FDS, info(0)),
        (GET_IRQ_INFO, info(0)),
        (REGION_READ, access(0, 0, 4, &[])),
        (REGION_WRITE, access(0, 0, 4, &[0; 4])),
        (RESET, vec![]),
        (WRITE_MULTI, bytes().u64(0).0),
    ] {
        assert_eq!(bench.errno(command, &payload, &[fd.as_fd()]), EINVAL, "{command}");
    }
}

#[test]
fn what_is_not_offered_is_said_to_be_so() {
    let mut bench = Bench::new();
    let feature = |flags: u32| bytes().u32(8).u32(flags).0;
    for (command, payload) in [
        (0, vec![]),
        (14, vec![0; 24]),
        (19, vec![1, 2, 3]),
        (0xffff, vec![0; 1000]),
        (DMA_READ, bytes().u64(0).u64(4).0),
        (DMA_WRITE, bytes().u64(0).u64(0).0),
        (MIG_DATA_READ, bytes().u32(8).u32(0).0),
        (MIG_DATA_WRITE, bytes().u32(8).u32(0).0),
        // Get, set, and probe both, of migration and its state.
        (DEVICE_FEATURE, feature(0x1_0001)),
        (DEVICE_FEATURE, feature(0x2_0002)),
        (DEVICE_FEATURE, feature(0x7_0001)),
    ] {
        assert_eq!(bench.errno(command, &payload, &[]), EOPNOTSUPP, "{command}");
    }
    for payload in [
        vec![0; 7],
        bytes().u32(7).u32(0x1_0001).0,
        // Neither, and both without probing, and a bit that nobody knows.
        feature(1),
        feature(0x3_0001),
        feature(0x9_0001),
    ] {
        assert_eq!(bench.errno(DEVICE_FEATURE, &payload, &[]), EINVAL);
    }
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0, "the stream is still in step");
}

#[test]
fn a_message_that_is_neither_command_nor_reply_is_invalid() {
    let mut bench = Bench::new();
    for kind in 2..16 {
        let id = bench.client.send(GET_INFO, kind, &info(0), &[]);
        assert_eq!(bench.poll(), None);
        let got = bench.client.receive().unwrap();
        assert_eq!((got.id, got.flags, got.error), (id, 0x21, EINVAL as u32));
    }
    // Bits that are reserved are not looked at.
    let id = bench.client.send(GET_INFO, 0xffff_ffc0, &info(0), &[]);
    assert_eq!(bench.poll(), None);
    let got = bench.client.receive().unwrap();
    assert_eq!((got.id, got.flags, got.error), (id, 1, 0));
}

#[test]
fn without_a_reply_neither_success_nor_error_is_said() {
    let mut bench = Bench::new();
    bench.client.send(DMA_MAP, NO_REPLY, &dma_map(3, 0, 0, 0x1000), &[]);
    bench.client.send(DMA_MAP, NO_REPLY, &dma_map(3, 0, 0, 0x1000), &[]);
    bench.client.send(77, NO_REPLY, &[], &[]);
    assert_eq!(bench.poll(), None);
    assert!(bench.client.receive().is_none());
    assert_eq!(bench.server.memory().maps(), 1);
    let errors = bench.server.counters();
    assert!(errors.contains(&("vfio-user: requests with an error", 2)), "{errors:?}");
}
