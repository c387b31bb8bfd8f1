//! One device on the root port's link, without a switch.

use crate::fabric::{Direct, quick};
use device_models::accelerator::{Accelerator, Config, regs as device_regs};
use device_models::endpoint::Endpoint;
use device_models::{Device as _, ResetKind};
use host_model::accelerator::{BandwidthTest, Direction, regs};
use host_model::{AccessError, HostConfig, HostEvent, MAX_OUTSTANDING, ModelHost, OperationError};
use std::time::Duration;
use tlp_codec::ids::Bdf;

type Device = Endpoint<Accelerator>;
type Host = ModelHost<Direct<Device>>;

const DEVICE: Bdf = Bdf::from_bits(0x0100);

fn host_of(config: HostConfig, device: Config) -> Host {
    let device = Accelerator::device(device).unwrap();
    let mut host = ModelHost::new(Direct::new(device), config).unwrap();
    host.enumerate().unwrap();
    host
}

fn host() -> Host {
    host_of(quick(), Config::default())
}

/// A device that has just been reset, when it may take its time.
fn after_reset(config: Config) -> Direct<Device> {
    let mut port = Direct::new(Accelerator::device(config).unwrap());
    port.device.handle_reset(port.now(), ResetKind::HotReset);
    port
}

fn test(direction: Direction, bytes: u64) -> BandwidthTest {
    BandwidthTest { direction, bytes, tags: None, request: None }
}

#[test]
fn the_device_is_found_set_up_and_driven() {
    let mut host = host();
    assert_eq!(
        host.poll_event(),
        Some(HostEvent::DeviceAdded {
            port: None,
            bdf: DEVICE,
            vendor: 0x1b36,
            device: 0xd0ac,
            driver: Some("accelerator"),
        })
    );
    assert_eq!(host.poll_event(), None);
    let node = host.topology().get(DEVICE).unwrap();
    let memory = node.bars[2].unwrap();
    assert!(memory.prefetchable && host.config().window64.contains(memory.address.unwrap()));
    let registers = node.bars[0].unwrap();
    assert!(host.config().window32.contains(registers.address.unwrap()));
    assert_eq!(node.max_payload, 512);
    let text = host.tree().to_string();
    assert!(
        text.contains("01:00.0 processing accelerator 1b36:d0ac, driver accelerator"),
        "{text}"
    );
    let json = serde_json::to_value(host.tree()).unwrap();
    assert_eq!(json["devices"][0]["bdf"], "01:00.0");
}

#[test]
fn the_drivers_registers_are_the_devices() {
    let pairs: [(u64, u64); 22] = [
        (regs::ID, device_regs::ID),
        (regs::VERSION, device_regs::VERSION),
        (regs::CAPABILITIES, device_regs::CAPABILITIES),
        (regs::PAYLOAD, device_regs::PAYLOAD),
        (regs::MEMORY_SIZE, device_regs::MEMORY_SIZE),
        (regs::SCRATCH, device_regs::SCRATCH),
        (regs::CONTROL, device_regs::CONTROL),
        (regs::ABORT, device_regs::ABORT),
        (regs::TAGS, device_regs::TAGS),
        (regs::READ_REQUEST, device_regs::READ_REQUEST),
        (regs::SLOT_HOST, device_regs::slot(0, device_regs::SLOT_HOST)),
        (regs::SLOT_HOST_WINDOW, device_regs::slot(0, device_regs::SLOT_HOST_WINDOW)),
        (regs::SLOT_DEVICE, device_regs::slot(0, device_regs::SLOT_DEVICE)),
        (regs::SLOT_LENGTH, device_regs::slot(0, device_regs::SLOT_LENGTH)),
        (regs::SLOT_COMMAND, device_regs::slot(0, device_regs::SLOT_COMMAND)),
        (regs::SLOT_STATUS, device_regs::slot(0, device_regs::SLOT_STATUS)),
        (regs::SLOT_CRC, device_regs::slot(0, device_regs::SLOT_CRC)),
        (regs::SLOT_ELAPSED, device_regs::slot(0, device_regs::SLOT_ELAPSED)),
        (regs::SLOT_TRANSFERRED, device_regs::slot(0, device_regs::SLOT_TRANSFERRED)),
        (regs::SLOT_REQUESTS, device_regs::slot(0, device_regs::SLOT_REQUESTS)),
        (regs::SLOT_PEAK, device_regs::slot(0, device_regs::SLOT_PEAK)),
        (regs::DOORBELL, device_regs::doorbell(0)),
    ];
    for (driver, device) in pairs {
        assert_eq!(driver, device);
    }
    assert_eq!(regs::SLOT_RTT_SUM, device_regs::slot(0, device_regs::SLOT_RTT_SUM));
    assert_eq!(regs::SLOT_RTT_MIN, device_regs::slot(0, device_regs::SLOT_RTT_MIN));
    assert_eq!(regs::SLOT_RTT_MAX, device_regs::slot(0, device_regs::SLOT_RTT_MAX));
    let words = [
        (regs::ID_VALUE, device_regs::ID_VALUE),
        (regs::VERSION_MAJOR, device_regs::VERSION_VALUE >> 16),
        (regs::CONTROL_RESET, device_regs::CONTROL_RESET),
        (regs::OP_READ, device_regs::COMMAND_READ),
        (regs::OP_WRITE, device_regs::COMMAND_WRITE),
        (regs::OP_FILL, device_regs::COMMAND_FILL),
        (regs::COMMAND_INTERRUPT, device_regs::COMMAND_INTERRUPT),
        (regs::STATE_RUNNING.into(), device_regs::STATE_RUNNING.into()),
        (regs::STATE_DONE.into(), device_regs::STATE_DONE.into()),
        (regs::VENDOR_ID.into(), device_regs::VENDOR_ID.into()),
        (regs::DEVICE_ID.into(), device_regs::DEVICE_ID.into()),
        (regs::REGISTER_BAR.into(), device_regs::REGISTER_BAR as u32),
        (regs::MEMORY_BAR.into(), device_regs::MEMORY_BAR as u32),
    ];
    for (driver, device) in words {
        assert_eq!(driver, device);
    }
    for k in [0, 1, 77, u64::MAX] {
        assert_eq!(regs::pattern_word(9, k), device_regs::pattern_word(9, k));
    }
}

#[test]
fn bandwidth_both_ways_with_every_byte_checked() {
    let mut split = quick();
    split.root.split_at_boundary = true;
    let mut small = quick();
    small.root.read_completion_boundary = 128;
    small.max_payload = 128;
    for config in [quick(), split, small] {
        let mut host = host_of(config, Config::default());
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            for bytes in [1, 4097, 1_300_000] {
                let report = host.accelerator_bandwidth(DEVICE, &test(direction, bytes)).unwrap();
                assert_eq!(report.bytes, bytes);
                assert_eq!(report.direction, direction);
            }
        }
        let counters = *host.root().counters();
        assert_eq!((counters.malformed, counters.unexpected_completions), (0, 0));
        assert_eq!((counters.posted_dropped, counters.unsupported_requests), (0, 0));
    }
}

#[test]
fn a_device_with_less_memory_than_the_test_moves_is_checked_too() {
    let device = Config { memory_size: 64 << 10, ..Config::default() };
    let mut host = host_of(quick(), device);
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        host.accelerator_bandwidth(DEVICE, &test(direction, 1_200_001)).unwrap();
    }
}

#[test]
fn device_memory_is_written_and_read_at_any_alignment() {
    let mut host = host();
    let memory = host.topology().get(DEVICE).unwrap().bars[2].unwrap().address.unwrap();
    let data: Vec<u8> = (0..10_007_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for start in [0, 1, 4095, 8190] {
        host.mmio_write(memory + start, &data).unwrap();
        let mut back = vec![0; data.len()];
        host.mmio_read(memory + start, &mut back).unwrap();
        assert!(back == data, "from {start}");
    }
}

#[test]
fn scratch_and_latency() {
    let mut host = host();
    host.with_accelerator(DEVICE, |function, accelerator| accelerator.check_scratch(function))
        .unwrap();
    let report = host.mmio_latency(DEVICE, 0, regs::ID, 100, 1).unwrap();
    assert_eq!(report.count, 100);
    assert!(report.min_ns > 0 && report.min_ns <= report.median_ns);
    assert!(report.median_ns <= report.p99_ns && report.p99_ns <= report.max_ns);
    assert!(host.mmio_latency(DEVICE, 0, 1 << 20, 1, 1).is_err());
    assert!(host.mmio_latency(DEVICE, 0, 0, 0, 1).is_err());
    assert!(host.mmio_latency(DEVICE, 0, regs::ID + 2, 1, 1).is_err(), "over a doubleword's end");
    let several = host.mmio_latency(DEVICE, 0, regs::ID, 100, 16).unwrap();
    assert!(several.count == 100 && several.per_second > 0.0, "{several:?}");
    for too_many in [0, MAX_OUTSTANDING + 1] {
        let refused = host.mmio_latency(DEVICE, 0, regs::ID, 100, too_many);
        assert!(matches!(refused, Err(OperationError::Invalid(_))), "{refused:?}");
    }
}

#[test]
fn where_nobody_is_reads_are_all_ones_and_say_why() {
    let mut host = host();
    let nobody = Bdf::from_bits(0x0101);
    assert!(matches!(host.config_read(nobody, 0, 4), Err(AccessError::UnsupportedRequest(_))));
    let mut buf = [0; 10];
    let registers = host.topology().get(DEVICE).unwrap().bars[0].unwrap();
    let behind = registers.address.unwrap() + registers.size;
    let error = host.mmio_read(behind, &mut buf).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert_eq!(buf, [0xff; 10]);
    // The last bytes that there are; behind them are none.
    for len in [1, 2, 3, 4] {
        let last = u64::MAX - (len as u64 - 1);
        let error = host.mmio_read(last, &mut buf[..len]).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        host.mmio_write(last, &buf[..len]).unwrap();
        let error = host.mmio_read(last, &mut buf[..len + 1]).unwrap_err();
        assert!(matches!(error, AccessError::Invalid(_)), "{error}");
        let refused = host.mmio_write(last, &buf[..len + 1]);
        assert!(matches!(refused, Err(AccessError::Invalid(_))), "{refused:?}");
    }
    assert!(matches!(host.nvme_show(DEVICE), Err(OperationError::NotBound { wanted: "nvme", .. })));
    // The driver is still where it was.
    host.accelerator_bandwidth(DEVICE, &test(Direction::DeviceToHost, 100)).unwrap();
}

#[test]
fn a_device_that_is_not_ready_is_waited_for() {
    let device = Config { ready_after: Duration::from_secs(3600), ..Config::default() };
    let mut port = after_reset(device);
    port.jump = Some((5, Duration::from_secs(3600)));
    let mut host = ModelHost::new(port, quick()).unwrap();
    host.enumerate().unwrap();
    assert!(host.topology().get(DEVICE).is_some());
    assert_eq!(host.root().counters().config_retries, 4);
}

#[test]
fn a_device_that_stays_not_ready_is_given_up() {
    let mut config = quick();
    config.root.retry_timeout = Duration::from_millis(20);
    let device = Config { ready_after: Duration::from_secs(1000), ..Config::default() };
    let mut host = ModelHost::new(after_reset(device), config).unwrap();
    let error = host.enumerate().unwrap_err();
    assert!(matches!(error, AccessError::ConfigRetry(_)), "{error}");
}
