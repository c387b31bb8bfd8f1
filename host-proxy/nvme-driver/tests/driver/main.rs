//! The driver against a mock of the register and queue protocol.

mod mock;

use mock::Mock;
use nvme_driver::nvm::Blocks;
use nvme_driver::queue::Data;
use nvme_driver::{BlockStream, Controller, ControllerConfig, Error, FunctionError, PciFunction};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

fn attach(mock: &mut Mock) -> Controller {
    Controller::attach(mock, ControllerConfig::default()).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn bring_up_identifies_and_shutdown_frees_everything() {
    let mut mock = Mock::new(64);
    let mut controller = attach(&mut mock);
    assert_eq!(controller.identity().model, "Mock");
    assert_eq!(controller.queue_limit(), 2, "as many as were granted");
    assert_eq!(controller.max_transfer(), 64 * 1024);
    assert_eq!(controller.active_namespaces(&mut mock).unwrap(), [1]);
    assert_eq!(controller.namespace(&mut mock, 1).unwrap().bytes(), 64 * 512);
    assert_eq!(controller.smart_log(&mut mock).unwrap().temperature_kelvin, 40);
    assert_eq!(controller.get_feature(&mut mock, 1).unwrap(), 0x77);
    controller.shutdown(&mut mock).unwrap();
    assert!(mock.allocated.is_empty());
}

#[test]
fn a_refused_command_names_opcode_and_status_and_leaks_nothing() {
    let mut mock = Mock::new(64);
    let mut controller = attach(&mut mock);
    let error = controller.log_page(&mut mock, 0x70, 0, 64).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Get Log Page (opcode 0x02) failed: Invalid Log Page (type 1, code 0x09), do not retry"
    );
    controller.shutdown(&mut mock).unwrap();
    assert!(mock.allocated.is_empty());
}

#[test]
fn streams_come_back_as_they_went_whatever_the_order_of_completions() {
    for reverse in [false, true] {
        let mut mock = Mock::new(4096);
        mock.faults.reverse = reverse;
        let mut controller = attach(&mut mock);
        let namespace = controller.namespace(&mut mock, 1).unwrap();
        let mut stream =
            BlockStream::open(&mut mock, &mut controller, namespace, 7, 48 * 1024).unwrap();
        let data = pattern(1_000_001);
        let mut steps = Vec::new();
        let written = stream
            .write(&mut mock, 3, &mut data.as_slice(), None, &mut |p| steps.push(p.done))
            .unwrap();
        assert_eq!(written, 1_000_001);
        assert!(steps.is_sorted());
        assert_eq!(steps.last(), Some(&1_000_001));
        assert_eq!(mock.flushes, 1);
        assert_eq!(mock.deepest, 7, "as many in flight as asked for");
        assert_eq!(mock.disk[3 * 512..3 * 512 + data.len()], data);
        assert_eq!(mock.disk[3 * 512 + data.len()], 0, "the last block is filled up");
        let mut back = Vec::new();
        stream.read(&mut mock, 3, data.len() as u64, &mut back, &mut |_| {}).unwrap();
        assert!(back == data);
        stream.close(&mut mock, &mut controller).unwrap();
        controller.shutdown(&mut mock).unwrap();
        assert!(mock.allocated.is_empty());
    }
}

#[test]
fn a_failing_write_ends_the_stream_and_leaves_the_queue_usable() {
    let mut mock = Mock::new(4096);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut stream = BlockStream::open(&mut mock, &mut controller, namespace, 4, 4096).unwrap();
    mock.faults.fail.insert(1, 0x280);
    let data = pattern(100_000);
    let error = stream.write(&mut mock, 0, &mut data.as_slice(), None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Command { .. }), "{error}");
    mock.faults.fail.clear();
    stream.write(&mut mock, 0, &mut data.as_slice(), None, &mut |_| {}).unwrap();
    assert_eq!(mock.disk[..data.len()], data);
}

#[test]
fn more_than_the_namespace_holds_is_an_error_that_says_so() {
    let mut mock = Mock::new(16);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut stream = BlockStream::open(&mut mock, &mut controller, namespace, 4, 4096).unwrap();
    let data = pattern(17 * 512);
    let error = stream.write(&mut mock, 0, &mut data.as_slice(), None, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("outside namespace 1, which has 16 blocks"), "{error}");
}

#[test]
fn a_lost_command_times_out_and_a_reset_recovers() {
    let mut mock = Mock::new(64);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut queue = controller.create_queue_pair(&mut mock, 4).unwrap();
    mock.faults.swallow = Some(0);
    let error = namespace.flush(&mut mock, &mut queue, TIMEOUT).unwrap_err();
    assert!(matches!(error, Error::Timeout { waited, .. } if waited >= TIMEOUT), "{error}");
    assert_eq!(queue.in_use(), 1, "its place is not used again");
    mock.faults.swallow = None;
    controller.reset(&mut mock).unwrap();
    queue.free(&mut mock);
    let mut queue = controller.create_queue_pair(&mut mock, 4).unwrap();
    namespace.flush(&mut mock, &mut queue, TIMEOUT).unwrap();
    assert_eq!(queue.in_use(), 0);
}

/// The others in flight are not each waited for as long.
#[test]
fn a_drive_that_answers_no_more_holds_a_stream_up_for_two_timeouts_at_most() {
    let mut mock = Mock::new(4096);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut stream = BlockStream::open(&mut mock, &mut controller, namespace, 8, 4096).unwrap();
    mock.faults.swallow = Some(1);
    let (data, began) = (pattern(100_000), mock.now());
    let error = stream.write(&mut mock, 0, &mut data.as_slice(), None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let longest = 2 * controller.config().command_timeout + Duration::from_secs(1);
    let took = mock.now() - began;
    assert!(took <= longest, "{took:?}");
}

#[test]
fn a_full_queue_and_a_lack_of_queues_are_told() {
    let mut mock = Mock::new(64);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut queue = controller.create_queue_pair(&mut mock, 3).unwrap();
    let first = namespace.submit_flush(&mut mock, &mut queue).unwrap();
    let second = namespace.submit_flush(&mut mock, &mut queue).unwrap();
    assert!(matches!(namespace.submit_flush(&mut mock, &mut queue), Err(Error::QueueFull(1))));
    queue.ring(&mut mock).unwrap();
    assert_eq!(queue.poll(&mut mock).unwrap(), 2);
    assert!(queue.take(second).is_some() && queue.take(first).is_some());
    assert!(queue.take(first).is_none());
    let other = controller.create_queue_pair(&mut mock, 3).unwrap();
    assert!(matches!(controller.create_queue_pair(&mut mock, 3), Err(Error::NoQueues(2))));
    controller.delete_queue_pair(&mut mock, other).unwrap();
    assert!(controller.create_queue_pair(&mut mock, 3).is_ok());
}

/// A controller that may still come to a queue keeps its rings, and the identifier.
#[test]
fn rings_that_the_controller_may_have_are_not_freed() {
    let (create_sq, delete_cq, create_cq) = (1, 4, 5);
    // What is lost on the way or fails, what is told, and whether the memory and identifier are free.
    let refused = |opcodes: &[u8]| opcodes.iter().map(|opcode| (*opcode, 0x4102)).collect();
    for (mute, fail, told, free) in [
        (Some(create_sq), refused(&[]), "Create I/O Submission Queue (opcode 0x01) did not", false),
        (Some(create_cq), refused(&[]), "Create I/O Completion Queue (opcode 0x05) did not", false),
        (None, refused(&[create_sq, delete_cq]), "(opcode 0x01) failed: Invalid Queue Size", false),
        (Some(delete_cq), refused(&[create_sq]), "(opcode 0x01) failed: Invalid Queue Size", false),
        (None, refused(&[create_sq]), "(opcode 0x01) failed: Invalid Queue Size", true),
        (None, refused(&[create_cq]), "(opcode 0x05) failed: Invalid Queue Size", true),
    ] {
        let mut mock = Mock::new(64);
        let mut controller = attach(&mut mock);
        let before = mock.allocated.len();
        (mock.faults.mute_admin, mock.faults.fail_admin) = (mute, fail);
        let error = controller.create_queue_pair(&mut mock, 4).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert_eq!(mock.allocated.len() - before, if free { 0 } else { 2 }, "{error}");
        (mock.faults.mute_admin, mock.faults.fail_admin) = Default::default();
        assert_eq!(controller.free_queue_id().unwrap(), if free { 1 } else { 2 }, "{error}");
        controller.create_queue_pair(&mut mock, 4).unwrap();
        controller.reset(&mut mock).unwrap();
        assert_eq!(controller.free_queue_id().unwrap(), 1, "a reset recovers");
    }
}

#[test]
fn write_zeroes_and_deallocate_reach_their_blocks() {
    let mut mock = Mock::new(64);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut queue = controller.create_queue_pair(&mut mock, 8).unwrap();
    let range = |lba, count| Blocks { lba, count };
    namespace.write_zeroes(&mut mock, &mut queue, range(4, 2), TIMEOUT).unwrap();
    let ranges = [range(10, 1), range(20, 3)];
    namespace.deallocate(&mut mock, &mut queue, &ranges, TIMEOUT).unwrap();
    let zero: Vec<usize> = (0..64).filter(|block| mock.disk[block * 512] == 0).collect();
    assert_eq!(zero, [4, 5, 10, 20, 21, 22]);
    for bad in [range(64, 1), range(63, 2), range(u64::MAX, 2), range(0, 0)] {
        assert!(namespace.write_zeroes(&mut mock, &mut queue, bad, TIMEOUT).is_err());
    }
}

#[test]
fn data_outside_its_buffer_is_refused() {
    let mut mock = Mock::new(64);
    let mut controller = attach(&mut mock);
    let namespace = controller.namespace(&mut mock, 1).unwrap();
    let mut queue = controller.create_queue_pair(&mut mock, 8).unwrap();
    let buffer = mock.dma_alloc(4096).unwrap();
    let data = Data { buffer: &buffer, offset: 4096, len: 512 };
    let blocks = Blocks { lba: 0, count: 1 };
    assert!(matches!(
        namespace.submit_read(&mut mock, &mut queue, blocks, data),
        Err(Error::Function(FunctionError::OutsideBuffer { .. }))
    ));
    assert_eq!(queue.in_use(), 0);
}

#[test]
fn a_controller_that_does_not_get_ready_or_is_gone_is_told_apart() {
    let mut mock = Mock::new(64);
    mock.faults.never_ready = true;
    let error = Controller::attach(&mut mock, ControllerConfig::default()).unwrap_err();
    assert!(error.to_string().contains("did not become ready"), "{error}");
    assert!(mock.allocated.is_empty(), "an idle controller holds no memory");
    mock.faults.gone = true;
    let error = Controller::attach(&mut mock, ControllerConfig::default()).unwrap_err();
    assert!(error.is_gone(), "{error}");
}
