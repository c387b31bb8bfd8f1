//! The NVMe driver with the controller model, through the virtual switch.

use crate::fabric::{Action, Fabric, Switched, host_and_switch, port, port_above, quick};
use device_models::Device;
use device_models::nvme::image::MemoryImage;
use device_models::nvme::{BlockSize, Config, Nvme};
use host_model::{HostEvent, ModelHost, OperationError, SlotState, StreamOptions};
use nvme_driver::admin::feature;
use nvme_driver::nvm::Blocks;
use nvme_driver::queue::Data;
use nvme_driver::{BlockStream, Command, Error, Opcode, PciFunction};
use proxy_core::switch::{RemovalRequest, SwitchConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tlp_codec::ids::Bdf;

type Host = ModelHost<Switched>;

const LONG: Duration = Duration::from_secs(20);

fn drive(size: usize) -> Box<dyn Device> {
    let images = [BlockSize::B512, BlockSize::B4096]
        .map(|block| (Box::new(MemoryImage::new(size)) as Box<_>, block));
    Box::new(Nvme::device(Config::default(), images.into()).unwrap())
}

fn event(host: &mut Host) -> HostEvent {
    host.service(Instant::now() + LONG).unwrap();
    host.poll_event().expect("an event comes in time")
}

fn plug(host: &mut Host, fabric: &Rc<RefCell<Fabric>>, number: u8, drive: Box<dyn Device>) -> Bdf {
    fabric.borrow_mut().plug(port(number), drive);
    match event(host) {
        HostEvent::DeviceAdded { bdf, driver: Some("nvme"), .. } => bdf,
        other => panic!("{other:?}"),
    }
}

fn data(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

fn write(host: &mut Host, bdf: Bdf, options: StreamOptions, data: &[u8]) {
    let mut done = Vec::new();
    let report = host
        .nvme_write(bdf, options, &mut &*data, Some(data.len() as u64), &mut |p| done.push(p.done))
        .unwrap();
    assert_eq!(report.bytes, data.len() as u64);
    assert!(done.is_sorted() && done.last() == Some(&report.bytes));
}

fn read(host: &mut Host, bdf: Bdf, options: StreamOptions, len: usize) -> Vec<u8> {
    let mut back = Vec::new();
    host.nvme_read(bdf, options, len as u64, &mut back, &mut |_| {}).unwrap();
    back
}

#[test]
fn what_was_written_is_read_whatever_depth_and_chunk() {
    let (mut host, fabric) = host_and_switch(2);
    let bdf = plug(&mut host, &fabric, 0, drive(8 << 20));
    let list = host.nvme_list().unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].bdf, bdf);
    assert_eq!(list[0].controller.model, "DxPU NVMe model");
    assert!(list[0].vectors > 1, "MSI-X is in use");
    let sizes: Vec<_> = list[0].namespaces.iter().map(|ns| (ns.id(), ns.block_size())).collect();
    assert_eq!(sizes, [(1, 512), (2, 4096)]);
    assert_eq!(serde_json::to_value(&list).unwrap()[0]["bdf"], bdf.to_string());
    let free = host.root().memory().free_bytes();
    for (namespace, lba, queue_depth, chunk, len) in [
        (1, 0, 1, 512, 10_000),
        (1, 77, 16, 128 << 10, 3_000_001),
        (2, 5, 4, 60_000, 1_000_000),
        (2, 0, 64, 1 << 20, 2_500_000),
    ] {
        let options = StreamOptions { namespace, lba, queue_depth, chunk };
        let data = data(len, lba as u32 + chunk as u32);
        write(&mut host, bdf, options, &data);
        assert!(read(&mut host, bdf, options, len) == data, "{options:?}");
        assert_eq!(host.root().memory().free_bytes(), free, "{options:?}");
    }
    let counters = *host.root().counters();
    assert_eq!((counters.malformed, counters.unexpected_completions), (0, 0));
    assert_eq!((counters.posted_dropped, counters.unsupported_requests), (0, 0));
}

#[test]
fn polling_works_where_interrupts_are_off() {
    let mut config = quick();
    config.nvme.interrupts = false;
    let (port, fabric) = port_above(SwitchConfig { ports: 1, ..SwitchConfig::default() });
    let mut host = ModelHost::new(port, config).unwrap();
    host.enumerate().unwrap();
    while host.poll_event().is_some() {}
    let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
    assert_eq!(host.nvme_show(bdf).unwrap().vectors, 0);
    let data = data(500_000, 3);
    write(&mut host, bdf, StreamOptions::default(), &data);
    assert!(read(&mut host, bdf, StreamOptions::default(), data.len()) == data);
}

#[test]
fn data_stays_over_an_orderly_removal() {
    let (mut host, fabric) = host_and_switch(2);
    let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
    let data = data(700_000, 5);
    write(&mut host, bdf, StreamOptions::default(), &data);
    assert_eq!(fabric.borrow_mut().request_removal(port(0)), RemovalRequest::Pressed);
    let removed = event(&mut host);
    assert!(matches!(removed, HostEvent::DeviceRemoved { surprise: false, .. }), "{removed:?}");
    host.service(Instant::now() + Duration::from_millis(5)).unwrap();
    let device = fabric.borrow_mut().devices.remove(&port(0)).unwrap();
    let bdf = plug(&mut host, &fabric, 1, device);
    assert!(read(&mut host, bdf, StreamOptions::default(), data.len()) == data);
    // The controller was told that it would go.
    let unsafe_shutdowns = host
        .with_nvme(bdf, |function, controller| Ok(controller.smart_log(function)?.unsafe_shutdowns))
        .unwrap();
    assert_eq!(unsafe_shutdowns, 0);
}

#[test]
fn surprise_removal_in_the_middle_of_a_write_ends_it() {
    for after in [5, 100, 2000] {
        let (mut host, fabric) = host_and_switch(2);
        let free = host.root().memory().free_bytes();
        let bdf = plug(&mut host, &fabric, 0, drive(8 << 20));
        fabric.borrow_mut().after_tlps = Some((after, Action::Surprise(port(0))));
        let data = data(8 << 20, 5);
        let start = Instant::now();
        let error = host
            .nvme_write(bdf, StreamOptions::default(), &mut &*data, None, &mut |_| {})
            .unwrap_err();
        assert!(matches!(&error, OperationError::Nvme(error) if error.is_gone()), "{error}");
        assert!(start.elapsed() < LONG);
        let removed = event(&mut host);
        assert!(matches!(removed, HostEvent::DeviceRemoved { surprise: true, .. }), "{removed:?}");
        assert_eq!(host.root().memory().free_bytes(), free, "nothing leaks");
        let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
        write(&mut host, bdf, StreamOptions::default(), &data[..100_000]);
    }
}

#[test]
fn a_drive_that_goes_while_its_driver_is_bound_does_not_hold_up_the_host() {
    for after in [40, 80, 90, 100] {
        let (mut host, fabric) = host_and_switch(1);
        fabric.borrow_mut().after_tlps = Some((after, Action::Surprise(port(0))));
        fabric.borrow_mut().plug(port(0), drive(1 << 20));
        let start = Instant::now();
        while !fabric.borrow().devices.is_empty() && start.elapsed() < LONG {
            host.service(Instant::now() + Duration::from_millis(20)).unwrap();
            if let Some(HostEvent::DeviceAdded { bdf, .. }) = host.poll_event() {
                // It was bound before its time came: it goes now.
                let _ = host.mmio_latency(bdf, 0, 0, 200, 1);
            }
        }
        let above = fabric.borrow().switch.port_id(port(0));
        while host.slot_state(above) != Some(SlotState::Off) && start.elapsed() < LONG {
            host.service(Instant::now() + Duration::from_millis(20)).unwrap();
            while host.poll_event().is_some() {}
        }
        assert!(start.elapsed() < LONG, "after {after}");
        assert_eq!(host.topology().iter().count(), 2, "after {after}");
    }
}

#[test]
fn admin_commands() {
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
    host.with_nvme(bdf, |function, controller| {
        assert_eq!(controller.active_namespaces(function)?, [1, 2]);
        let smart = controller.smart_log(function)?;
        assert!(smart.temperature_kelvin > 273);
        let cache = controller.get_feature(function, feature::VOLATILE_WRITE_CACHE)? & 1;
        controller.set_feature(function, feature::VOLATILE_WRITE_CACHE, cache ^ 1)?;
        assert_eq!(controller.get_feature(function, feature::VOLATILE_WRITE_CACHE)?, cache ^ 1);
        // A read beyond the end, past the driver's own check, is told by the controller.
        let mut queue = controller.create_queue_pair(function, 8)?;
        let buffer = function.dma_alloc(4096)?;
        let beyond = Command::new(Opcode::READ, 1).dword(10, u32::MAX);
        let whole = Data { buffer: &buffer, offset: 0, len: 512 };
        let error = queue.execute(function, &beyond, Some(whole), LONG).unwrap_err();
        assert!(error.to_string().contains("LBA Out of Range"), "{error}");
        let newest = controller.error_log(function, 4)?;
        assert_eq!((newest[0].queue, newest[0].lba), (1, u32::MAX.into()));
        function.dma_free(buffer);
        // Nothing is there to be aborted.
        let id = queue.submit(function, &Command::new(Opcode::FLUSH, 1), None)?;
        controller.abort(function, queue.layout().id, id)?;
        queue.ring(function)?;
        assert!(queue.wait(function, id, LONG)?.status.is_success());
        controller.delete_queue_pair(function, queue)?;
        Ok(())
    })
    .unwrap();
}

#[test]
fn zeroes_and_deallocation() {
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
    let options = StreamOptions::default();
    let mut expected = data(100 * 512, 1);
    write(&mut host, bdf, options, &expected);
    host.with_nvme(bdf, |function, controller| {
        let namespace = controller.namespace(function, 1)?;
        let mut queue = controller.create_queue_pair(function, 8)?;
        namespace.write_zeroes(function, &mut queue, Blocks { lba: 10, count: 5 }, LONG)?;
        let ranges = [Blocks { lba: 50, count: 1 }, Blocks { lba: 60, count: 2 }];
        namespace.deallocate(function, &mut queue, &ranges, LONG)?;
        controller.delete_queue_pair(function, queue)?;
        Ok(())
    })
    .unwrap();
    for block in [10, 11, 12, 13, 14, 50, 60, 61] {
        expected[block * 512..(block + 1) * 512].fill(0);
    }
    assert!(read(&mut host, bdf, options, expected.len()) == expected);
}

#[test]
fn a_reset_forgets_queues_and_the_drive_goes_on() {
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
    let free = host.root().memory().free_bytes();
    host.with_nvme(bdf, |function, controller| {
        let namespace = controller.namespace(function, 1)?;
        let stream = BlockStream::open(function, controller, namespace, 4, 4096)?;
        controller.reset(function)?;
        stream.abandon(function);
        Ok(())
    })
    .unwrap();
    assert_eq!(host.root().memory().free_bytes(), free);
    let data = data(200_000, 9);
    write(&mut host, bdf, StreamOptions::default(), &data);
    assert!(read(&mut host, bdf, StreamOptions::default(), data.len()) == data);
}

#[test]
fn a_queue_pair_works_for_who_has_its_memory() {
    // The admin half and the I/O half of sharing a drive, here on one host.
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0, drive(1 << 20));
    host.with_nvme(bdf, |function, controller| {
        let namespace = controller.namespace(function, 1)?;
        let layout = nvme_driver::queue::QueueLayout {
            id: controller.free_queue_id()?,
            depth: 8,
            doorbell_stride: controller.capabilities().doorbell_stride(),
            vector: None,
        };
        let mut queue = nvme_driver::QueuePair::allocate(function, layout)?;
        let (submission, completion) = (queue.submission_address(), queue.completion_address());
        let odd = controller.register_queue_pair(function, &layout, submission + 4, completion);
        assert!(matches!(odd, Err(Error::Invalid(_))));
        controller.register_queue_pair(function, &layout, submission, completion)?;
        namespace.flush(function, &mut queue, LONG)?;
        controller.unregister_queue_pair(function, layout.id)?;
        queue.free(function);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_stream_larger_than_the_namespace_is_told() {
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0, drive(64 << 10));
    let data = data((64 << 10) + 1, 2);
    let error =
        host.nvme_write(bdf, StreamOptions::default(), &mut &*data, None, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("outside namespace 1, which has 128 blocks"), "{error}");
    let missing = StreamOptions { namespace: 9, ..StreamOptions::default() };
    let error = host.nvme_read(bdf, missing, 512, &mut Vec::new(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("Invalid Namespace or Format"), "{error}");
    write(&mut host, bdf, StreamOptions::default(), &data[..1000]);
}
