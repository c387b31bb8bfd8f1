//! What every client does.

use crate::bench::{Bench, Said};
use crate::client::*;
use std::os::fd::AsFd;
use vfio_user_server::Irq;

#[test]
fn a_read_and_a_write() {
    let mut bench = Bench::new();
    bench.client.send(REGION_READ, 0, &access(0x40, 0, 4, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0x40, 4)));
    assert_eq!(bench.poll(), None);
    bench.server.answer(Ok(&[1, 2, 3, 4]));
    let got = bench.client.receive().unwrap();
    assert_eq!((got.flags, got.payload), (1, access(0x40, 0, 4, &[1, 2, 3, 4])));

    bench.client.send(REGION_WRITE, 0, &access(0xfff, 2, 1, &[9]), &[]);
    assert_eq!(bench.poll(), Some(Said::Write(2, 0xfff, vec![9])));
    bench.server.answer(Ok(&[]));
    let got = bench.client.receive().unwrap();
    assert_eq!((got.flags, got.payload), (1, access(0xfff, 2, 1, &[])));
}

#[test]
fn memory_and_an_interrupt() {
    let mut bench = Bench::new();
    let ram = sealed_memfd(0x10_0000);
    let map = dma_map(3, 0x1000, 0x8000_0000, 0x2000);
    assert_eq!(bench.errno(DMA_MAP, &map, &[ram.as_fd()]), 0);
    bench.server.memory().write(0x8000_0ffd, b"across a page").unwrap();
    let mut seen = [0; 13];
    rustix::io::pread(&ram, &mut seen, 0x1ffd).unwrap();
    assert_eq!(&seen, b"across a page");
    bench.server.memory().read(0x8000_0ffd, &mut seen[..6]).unwrap();
    assert_eq!(&seen[..6], b"across");

    assert!(!bench.server.trigger(Irq::Msix, 3));
    let vector = eventfd();
    assert_eq!(bench.errno(SET_IRQS, &set_irqs(0x24, 2, 3, 1, &[]), &[vector.as_fd()]), 0);
    assert!(bench.server.trigger(Irq::Msix, 3));
    assert_eq!(written(&vector), 1);
}
