//! What QEMU 11.1 sends, in its order.

use crate::bench::{Bench, Said};
use crate::client::*;
use std::os::fd::{AsFd, OwnedFd};
use vfio_user_server::{Errno, Irq, MemoryError};

impl Bench {
    fn fine(&mut self, command: u16, payload: &[u8], fds: &[std::os::fd::BorrowedFd]) -> Got {
        let got = self.call(command, payload, fds);
        assert_eq!(got.error, 0, "command {command}");
        got
    }

    fn config_read(&mut self, offset: u64, answer: &[u8]) {
        self.client.send(REGION_READ, 0, &access(offset, 7, answer.len() as u32, &[]), &[]);
        assert_eq!(self.poll(), Some(Said::Read(7, offset, answer.len())));
        self.server.answer(Ok(answer));
        let got = self.client.receive().unwrap();
        assert_eq!(&got.payload[16..], answer);
    }
}

#[test]
fn from_its_start_to_the_unplug() {
    let mut bench = Bench::connected();
    bench.greet(QEMU_CAPABILITIES);
    // Guest memory below and above 4 GiB, in one file.
    let ram = sealed_memfd(0x4000_0000);
    bench.fine(DMA_MAP, &dma_map(3, 0, 0, 0xa_0000), &[ram.as_fd()]);
    bench.fine(DMA_MAP, &dma_map(3, 0xc_0000, 0xc_0000, 0x3ff4_0000), &[ram.as_fd()]);
    bench.fine(DMA_MAP, &dma_map(1, 0, 0xfffc_0000, 0x4_0000), &[]);
    bench.fine(GET_INFO, &info(0), &[]);
    (0..9).for_each(|index| drop(bench.fine(GET_REGION_INFO, &region_info(index), &[])));
    (0..5).for_each(|index| drop(bench.fine(GET_IRQ_INFO, &info(index), &[])));
    bench.config_read(0, &[0x86, 0x80, 0xc0, 0x28]);
    bench.config_read(0x34, &[0x60]);
    bench.config_read(0, &[0; 0x100]);
    // It asks whether the ROM is there.
    bench.client.send(REGION_READ, 0, &access(0, 6, 2, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(6, 0, 2)));
    bench.server.answer(Err(Errno::IO));
    assert_eq!(bench.client.receive().unwrap().flags, 0x21);
    bench.client.send(RESET, 0, &[], &[]);
    assert_eq!(bench.poll(), Some(Said::Reset));
    bench.server.answer(Ok(&[]));
    bench.client.receive().unwrap();

    // The BIOS moves what is at 0xc0000; all of it is sent before any reply is read.
    bench.client.send(DMA_UNMAP, 0, &dma_unmap(0, 0xc_0000, 0x3ff4_0000), &[]);
    bench.client.send(DMA_MAP, 0, &dma_map(1, 0xc_0000, 0xc_0000, 0x4_0000), &[ram.as_fd()]);
    bench.client.send(DMA_MAP, 0, &dma_map(3, 0x10_0000, 0x10_0000, 0x3ff0_0000), &[ram.as_fd()]);
    assert_eq!(bench.poll(), None);
    let replies: Vec<Got> = std::iter::from_fn(|| bench.client.receive()).collect();
    assert!(replies.len() == 3 && replies.iter().all(|got| got.error == 0));
    let memory = bench.server.memory();
    memory.write(0x10_0000, &[1; 64]).unwrap();
    assert_eq!(memory.write(0xc_0000, &[1]), Err(MemoryError::Protected));
    assert_eq!(memory.write(0xa_0000, &[1]), Err(MemoryError::Unmapped));
    assert_eq!(memory.read(0xfffc_0000, &mut [0]), Err(MemoryError::ByMessage));

    // MSI-X: on without a vector, then one vector after the other.
    bench.fine(SET_IRQS, &set_irqs(0x24, 2, 0, 1, &[]), &[]);
    let mut vectors: Vec<OwnedFd> = Vec::new();
    for count in 1..=3 {
        vectors.push(eventfd());
        bench.fine(SET_IRQS, &set_irqs(0x21, 2, 0, 0, &[]), &[]);
        let all = borrowed(&vectors);
        bench.fine(SET_IRQS, &set_irqs(0x24, 2, 0, count, &[]), &all);
    }
    assert!((0..3).all(|vector| bench.server.trigger(Irq::Msix, vector)));
    assert!(vectors.iter().all(|vector| written(vector) == 1));

    // Posted writes, alone and several in one, and a read behind them.
    bench.client.send(REGION_WRITE, NO_REPLY, &access(0x10, 0, 4, &[1, 0, 0, 0]), &[]);
    let several =
        bytes().u64(2).and(&access(0x14, 0, 4, &[2; 8])).and(&access(0x18, 0, 2, &[3; 8]));
    bench.client.send(WRITE_MULTI, NO_REPLY, &several.0, &[]);
    bench.client.send(REGION_READ, 0, &access(0x10, 0, 8, &[]), &[]);
    for (offset, data) in [(0x10, vec![1, 0, 0, 0]), (0x14, vec![2; 4]), (0x18, vec![3; 2])] {
        assert_eq!(bench.poll(), Some(Said::Write(0, offset, data)));
        bench.server.answer(Ok(&[]));
    }
    assert_eq!(bench.poll(), Some(Said::Read(0, 0x10, 8)));
    bench.server.answer(Ok(&[0xff; 8]));
    assert_eq!(bench.client.receive().unwrap().command, REGION_READ);

    // Unplugged: interrupts off, reset, unmapped, gone.
    bench.fine(SET_IRQS, &set_irqs(0x21, 2, 0, 0, &[]), &[]);
    bench.client.send(RESET, 0, &[], &[]);
    assert_eq!(bench.poll(), Some(Said::Reset));
    bench.server.answer(Ok(&[]));
    bench.client.receive().unwrap();
    for (address, size) in
        [(0, 0xa_0000), (0xc_0000, 0x4_0000), (0x10_0000, 0x3ff0_0000), (0xfffc_0000, 0x4_0000)]
    {
        bench.fine(DMA_UNMAP, &dma_unmap(0, address, size), &[]);
    }
    assert_eq!(bench.server.memory().maps(), 0);
    bench.reconnect();
    bench.greet(QEMU_CAPABILITIES);
    bench.fine(DMA_MAP, &dma_map(3, 0, 0, 0xa_0000), &[ram.as_fd()]);
}
