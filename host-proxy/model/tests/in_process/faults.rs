//! A device that misbehaves: each access ends in bounded time, with the right error, and nothing
//! else is lost.

use crate::fabric::{Direct, quick};
use device_models::accelerator::{Accelerator, Config};
use device_models::endpoint::Endpoint;
use device_models::faulty::{Fault, Faulty};
use host_model::accelerator::{BandwidthTest, Direction, regs};
use host_model::{AccessError, ModelHost};
use std::time::Duration;
use tlp_codec::ids::Bdf;

type Host = ModelHost<Direct<Faulty<Endpoint<Accelerator>>>>;

const DEVICE: Bdf = Bdf::from_bits(0x0100);
const TIMEOUT: Duration = Duration::from_millis(20);

fn host() -> Host {
    let mut config = quick();
    config.root.completion_timeout = TIMEOUT;
    let device = Faulty::new(Accelerator::device(Config::default()).unwrap());
    let mut host = ModelHost::new(Direct::new(device), config).unwrap();
    host.enumerate().unwrap();
    host
}

fn set(host: &mut Host, fault: Option<Fault>) {
    host.root_mut().port_mut().device.set_fault(fault, 0);
}

fn read_id(host: &mut Host) -> (Result<(), AccessError>, u32) {
    let registers = host.topology().get(DEVICE).unwrap().bars[0].unwrap();
    let mut buf = [0; 4];
    let result = host.mmio_read(registers.address.unwrap() + regs::ID, &mut buf);
    (result, u32::from_le_bytes(buf))
}

fn works(host: &mut Host) {
    let (result, value) = read_id(host);
    result.unwrap();
    assert_eq!(value, regs::ID_VALUE);
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        let test = BandwidthTest { direction, bytes: 50_000, tags: None, request: None };
        host.accelerator_bandwidth(DEVICE, &test).unwrap();
    }
}

#[test]
fn silence_is_a_timeout_and_all_ones() {
    let mut host = host();
    set(&mut host, Some(Fault::Silent));
    let (result, value) = read_id(&mut host);
    assert!(matches!(result, Err(AccessError::Timeout(_))), "{result:?}");
    assert_eq!(value, u32::MAX);
    assert_eq!((host.root().counters().timeouts, host.root().outstanding()), (1, 0));
    assert!(matches!(host.config_read(DEVICE, 0, 4), Err(AccessError::Timeout(_))));
    set(&mut host, None);
    works(&mut host);
}

#[test]
fn after_silence_a_large_read_asks_no_further() {
    let mut host = host();
    let memory = host.topology().get(DEVICE).unwrap().bars[2].unwrap().address.unwrap();
    set(&mut host, Some(Fault::Silent));
    let mut buf = vec![0; 40_000];
    assert!(matches!(host.mmio_read(memory, &mut buf), Err(AccessError::Timeout(_))));
    let together = host.config().root.reads_outstanding as u64;
    assert_eq!(host.root().counters().timeouts, together, "those that were under way");
    assert!(buf.iter().all(|byte| *byte == 0xff));
    set(&mut host, None);
    works(&mut host);
}

#[test]
fn a_device_without_answers_runs_the_host_out_of_tags_and_they_come_back() {
    let mut config = quick();
    config.root.completion_timeout = TIMEOUT;
    config.root.reads_outstanding = 300;
    let device = Faulty::new(Accelerator::device(Config::default()).unwrap());
    let mut host: Host = ModelHost::new(Direct::new(device), config).unwrap();
    host.enumerate().unwrap();
    let memory = host.topology().get(DEVICE).unwrap().bars[2].unwrap().address.unwrap();
    set(&mut host, Some(Fault::Silent));
    // 300 requests of 512 bytes are more than there are tags.
    let mut buf = vec![0; 300 * 512];
    let error = host.mmio_read(memory, &mut buf).unwrap_err();
    assert!(matches!(error, AccessError::Timeout(_)), "{error}");
    assert!(buf.iter().all(|byte| *byte == 0xff));
    let (result, _) = read_id(&mut host);
    assert!(matches!(result, Err(AccessError::NoTags(_))), "{result:?}");
    assert_eq!(host.root().outstanding(), 0);
    set(&mut host, None);
    host.root_mut().idle(std::time::Instant::now() + 5 * TIMEOUT).unwrap();
    works(&mut host);
}

#[test]
fn second_completions_are_dropped() {
    let mut host = host();
    set(&mut host, Some(Fault::Twice));
    let (result, value) = read_id(&mut host);
    result.unwrap();
    assert_eq!(value, regs::ID_VALUE);
    set(&mut host, None);
    works(&mut host);
    assert_eq!(host.root().counters().unexpected_completions, 1);
}

#[test]
fn late_completions_are_not_taken_for_others() {
    let mut host = host();
    let hour = Duration::from_secs(3600);
    set(&mut host, Some(Fault::Late(hour)));
    let (result, value) = read_id(&mut host);
    assert!(matches!(result, Err(AccessError::Timeout(_))), "{result:?}");
    assert_eq!(value, u32::MAX);
    set(&mut host, None);
    host.root_mut().port_mut().ahead = hour;
    works(&mut host);
    let counters = host.root().counters();
    // Late, or of nobody, when the machine paused for so long that the tag was at rest no more.
    assert_eq!(counters.late_completions + counters.unexpected_completions, 1);
}

#[test]
fn completions_of_other_tags_are_dropped() {
    let mut host = host();
    set(&mut host, Some(Fault::WrongTag(0x80)));
    let (result, _) = read_id(&mut host);
    assert!(matches!(result, Err(AccessError::Timeout(_))), "{result:?}");
    assert_eq!(host.root().counters().unexpected_completions, 1);
    set(&mut host, None);
    works(&mut host);
}

#[test]
fn poisoned_data_is_an_error_and_never_reaches_memory() {
    let mut host = host();
    set(&mut host, Some(Fault::Poisoned));
    let (result, value) = read_id(&mut host);
    assert!(matches!(result, Err(AccessError::Poisoned(_))), "{result:?}");
    assert_eq!(value, u32::MAX);
    set(&mut host, None);
    works(&mut host);
}

#[test]
fn malformed_tlps_are_dropped_and_counted() {
    let mut host = host();
    set(&mut host, Some(Fault::Malformed));
    let (result, _) = read_id(&mut host);
    assert!(matches!(result, Err(AccessError::Timeout(_))), "{result:?}");
    assert!(host.root().counters().malformed >= 1);
    set(&mut host, None);
    works(&mut host);
}
