//! Devices that come and go behind the virtual switch.

use crate::fabric::{Action, Fabric, Switched, TURN, host_and_switch, port};
use device_models::accelerator::{Accelerator, Config};
use host_model::accelerator::{BandwidthReport, BandwidthTest, Direction, regs};
use host_model::{AccessError, HostEvent, ModelHost, OperationError, SlotState};
use proxy_core::control::PortState;
use proxy_core::switch::{Indicator, RemovalRequest, SwitchEvent};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tlp_codec::ids::{Bdf, PortId};
use tlp_codec::tlp::TlpType;

type Host = ModelHost<Switched>;

const LONG: Duration = Duration::from_secs(20);

fn accelerator() -> Box<dyn device_models::Device> {
    Box::new(Accelerator::device(Config::default()).unwrap())
}

/// Serves the host until there is an event.
fn event(host: &mut Host) -> HostEvent {
    let deadline = Instant::now() + LONG;
    host.service(deadline).unwrap();
    host.poll_event().expect("an event comes in time")
}

/// Serves the host for a while in which nothing is to happen.
fn quiet(host: &mut Host, time: Duration) {
    host.service(Instant::now() + time).unwrap();
    assert_eq!(host.poll_event(), None);
}

fn plug(host: &mut Host, fabric: &Rc<RefCell<Fabric>>, number: u8) -> Bdf {
    fabric.borrow_mut().plug(port(number), accelerator());
    match event(host) {
        HostEvent::DeviceAdded { bdf, driver: Some("accelerator"), port: Some(above), .. } => {
            assert_eq!(above, fabric.borrow().switch.port_id(port(number)));
            assert_eq!(host.slot_state(above), Some(SlotState::On));
            bdf
        }
        other => panic!("{other:?}"),
    }
}

fn moves(host: &mut Host, bdf: Bdf, direction: Direction, bytes: u64) -> BandwidthReport {
    let test = BandwidthTest { direction, bytes, tags: None, request: None };
    host.accelerator_bandwidth(bdf, &test).unwrap()
}

/// Every device had begun before any had a second turn.
fn all_at_once(dma: &[(PortId, TlpType)], direction: Direction, devices: &[u8]) {
    let moved = match direction {
        Direction::HostToDevice => TlpType::MRd,
        Direction::DeviceToHost => TlpType::MWr,
    };
    let of = |device: u8| move |what: &&(PortId, TlpType)| **what == (port(device), moved);
    let first = |device: &u8| dma.iter().position(|what| of(*device)(&what)).unwrap();
    let begun = devices.iter().map(first).max().unwrap();
    for device in devices {
        let ahead = dma[..begun].iter().filter(of(*device)).count();
        assert!(ahead <= TURN, "{direction:?}: {device} sent {ahead} before all had begun");
    }
}

#[test]
fn several_devices_are_measured_at_the_same_time_and_each_is_checked() {
    let (mut host, fabric) = host_and_switch(4);
    let devices = [2, 0, 3].map(|number| plug(&mut host, &fabric, number));
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        let test = BandwidthTest { direction, bytes: 300_000, tags: None, request: None };
        let free = host.root().memory().free_bytes();
        fabric.borrow_mut().dma.clear();
        let reports = host.accelerators_bandwidth(&devices, &test).unwrap();
        all_at_once(&fabric.borrow().dma, direction, &[2, 0, 3]);
        assert!(
            reports.iter().all(|report| (report.bytes, report.direction) == (300_000, direction))
        );
        assert_eq!(reports.len(), 3);
        // One that is not there ends nobody else's: their drivers and their memory are free again.
        let nobody = Bdf::from_bits(0x7f00);
        let (at, error) =
            host.accelerators_bandwidth(&[devices[0], nobody, devices[1]], &test).unwrap_err();
        assert!(at == nobody && matches!(error, OperationError::NoFunction(_)), "{at}: {error}");
        assert_eq!(host.root().memory().free_bytes(), free, "nothing leaks");
        assert_eq!(moves(&mut host, devices[0], direction, 4096).bytes, 4096);
    }
}

fn registers(host: &Host, bdf: Bdf) -> u64 {
    host.topology().get(bdf).unwrap().bars[0].unwrap().address.unwrap()
}

#[test]
fn plug_use_and_orderly_removal() {
    let (mut host, fabric) = host_and_switch(4);
    let bdf = plug(&mut host, &fabric, 2);
    let free = host.root().memory().free_bytes();
    let report = moves(&mut host, bdf, Direction::HostToDevice, 1 << 20);
    assert!(report.peak_outstanding > 1, "requests are outstanding together: {report:?}");
    moves(&mut host, bdf, Direction::DeviceToHost, 1 << 20);
    assert_eq!(host.root().memory().free_bytes(), free, "buffers come back");
    let address = registers(&host, bdf);
    assert_eq!(fabric.borrow_mut().request_removal(port(2)), RemovalRequest::Pressed);
    match event(&mut host) {
        HostEvent::DeviceRemoved { bdf: gone, surprise: false, .. } => assert_eq!(gone, bdf),
        other => panic!("{other:?}"),
    }
    // What the removal still has to write is written before the next event.
    quiet(&mut host, Duration::from_millis(5));
    let told = std::mem::take(&mut fabric.borrow_mut().events);
    assert!(told.contains(&SwitchEvent::LetGo { port: port(2), requested: true }), "{told:?}");
    assert!(
        told.contains(&SwitchEvent::PowerIndicator(port(2), Indicator::Blink))
            || told.contains(&SwitchEvent::PowerIndicator(port(2), Indicator::Off))
    );
    assert_eq!(fabric.borrow().state(port(2)), PortState::Empty);
    let mut buf = [0; 4];
    assert!(host.mmio_read(address, &mut buf).unwrap_err().is_unsupported());
    assert_eq!(buf, [0xff; 4]);
    assert!(matches!(host.config_read(bdf, 0, 4), Err(AccessError::UnsupportedRequest(_))));
    assert!(matches!(host.mmio_latency(bdf, 0, 0, 1, 1), Err(OperationError::NoFunction(_))));
    // And again, in the same place.
    assert_eq!(plug(&mut host, &fabric, 2), bdf);
    moves(&mut host, bdf, Direction::HostToDevice, 100_000);
}

#[test]
fn surprise_removal_while_nothing_happens() {
    let (mut host, fabric) = host_and_switch(2);
    let free = host.root().memory().free_bytes();
    let bdf = plug(&mut host, &fabric, 1);
    fabric.borrow_mut().at = Some((Instant::now(), Action::Surprise(port(1))));
    match event(&mut host) {
        HostEvent::DeviceRemoved { bdf: gone, surprise: true, .. } => assert_eq!(gone, bdf),
        other => panic!("{other:?}"),
    }
    assert_eq!(host.root().memory().free_bytes(), free);
    assert_eq!(plug(&mut host, &fabric, 1), bdf);
    moves(&mut host, bdf, Direction::HostToDevice, 5000);
}

#[test]
fn surprise_removal_in_the_middle_of_a_transfer_ends_it_and_nothing_else() {
    for after in [10, 500, 3000] {
        let (mut host, fabric) = host_and_switch(2);
        let other = plug(&mut host, &fabric, 0);
        let bdf = plug(&mut host, &fabric, 1);
        let free = host.root().memory().free_bytes();
        fabric.borrow_mut().after_tlps = Some((after, Action::Surprise(port(1))));
        let test = BandwidthTest {
            direction: Direction::HostToDevice,
            bytes: 64 << 20,
            tags: None,
            request: None,
        };
        let start = Instant::now();
        let error = host.accelerator_bandwidth(bdf, &test).unwrap_err();
        assert!(
            matches!(error, OperationError::Function(nvme_driver::FunctionError::Gone)),
            "{error}"
        );
        assert!(start.elapsed() < LONG, "the host does not hang");
        let removed = event(&mut host);
        assert!(matches!(removed, HostEvent::DeviceRemoved { surprise: true, .. }), "{removed:?}");
        assert_eq!(host.root().memory().free_bytes(), free, "nothing leaks");
        moves(&mut host, other, Direction::HostToDevice, 100_000);
        assert_eq!(plug(&mut host, &fabric, 1), bdf);
        moves(&mut host, bdf, Direction::HostToDevice, 100_000);
    }
}

#[test]
fn an_orderly_removal_waits_for_the_driver_at_work() {
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0);
    fabric.borrow_mut().after_tlps = Some((100, Action::Press(port(0))));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(80) {
        moves(&mut host, bdf, Direction::HostToDevice, 4 << 20);
    }
    let removed = event(&mut host);
    assert!(matches!(removed, HostEvent::DeviceRemoved { surprise: false, .. }), "{removed:?}");
}

#[test]
fn a_device_that_comes_while_another_works_is_taken_in() {
    let (mut host, fabric) = host_and_switch(2);
    let first = plug(&mut host, &fabric, 0);
    fabric.borrow_mut().plug(port(1), accelerator());
    moves(&mut host, first, Direction::HostToDevice, 2 << 20);
    let added = event(&mut host);
    let HostEvent::DeviceAdded { bdf, driver: Some("accelerator"), .. } = added else {
        panic!("{added:?}");
    };
    moves(&mut host, bdf, Direction::DeviceToHost, 2 << 20);
    moves(&mut host, first, Direction::DeviceToHost, 2 << 20);
}

#[test]
fn a_device_that_goes_before_it_was_looked_at_leaves_the_port_empty() {
    let (mut host, fabric) = host_and_switch(1);
    {
        let mut fabric = fabric.borrow_mut();
        fabric.plug(port(0), accelerator());
        fabric.at = Some((Instant::now(), Action::Surprise(port(0))));
    }
    host.service(Instant::now() + Duration::from_millis(300)).unwrap();
    while let Some(event) = host.poll_event() {
        assert!(matches!(event, HostEvent::Error { .. }), "{event:?}");
        host.service(Instant::now() + Duration::from_millis(50)).unwrap();
    }
    let above = fabric.borrow().switch.port_id(port(0));
    assert_eq!(host.slot_state(above), Some(SlotState::Off));
    plug(&mut host, &fabric, 0);
}

#[test]
fn a_device_that_does_not_fit_is_told_and_stays_without_driver() {
    let (mut host, fabric) = host_and_switch(1);
    let config = Config { memory_size: 8 << 30, ..Config::default() };
    fabric.borrow_mut().plug(port(0), Box::new(Accelerator::device(config).unwrap()));
    let first = event(&mut host);
    let HostEvent::Error { reason, .. } = &first else { panic!("{first:?}") };
    assert!(reason.contains("no room for 8589934592 bytes of 64-bit prefetchable"), "{reason}");
    let mut rest: Vec<HostEvent> = std::iter::from_fn(|| host.poll_event()).collect();
    let last = rest.pop();
    assert!(matches!(last, Some(HostEvent::DeviceAdded { driver: None, .. })), "{rest:?} {last:?}");
}

#[test]
fn reads_of_registers_take_as_long_as_they_take() {
    let (mut host, fabric) = host_and_switch(1);
    let bdf = plug(&mut host, &fabric, 0);
    let report = host.mmio_latency(bdf, 0, regs::ID, 200, 1).unwrap();
    assert_eq!(report.count, 200);
    println!("{report:?}");
}
