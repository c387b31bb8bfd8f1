//! The NVMe driver library on the controller model, with nothing in between but TLPs: two halves
//! that were written apart have to agree on the specification.

mod link;

use device_models::nvme::image::{FileImage, Image};
use device_models::nvme::{BlockSize, Config, Nvme};
use link::Link;
use nvme_driver::nvm::Blocks;
use nvme_driver::{BlockStream, Controller, ControllerConfig, Error};
use std::time::Duration;

type Drive = Link<device_models::endpoint::Endpoint<Nvme>>;

fn drive(blocks: &[BlockSize]) -> (Drive, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut images: Vec<(Box<dyn Image>, BlockSize)> = Vec::new();
    for (i, &block) in blocks.iter().enumerate() {
        let path = dir.path().join(format!("image{i}"));
        std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
        images.push((Box::new(FileImage::open(&path, false).unwrap()), block));
    }
    (Link::new(Nvme::device(Config::default(), images).unwrap()), dir)
}

fn attach(f: &mut Drive) -> Controller {
    Controller::attach(f, ControllerConfig::default()).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn streams_come_back_from_every_namespace_and_are_in_the_files() {
    let (mut f, dir) = drive(&[BlockSize::B512, BlockSize::B4096]);
    let mut controller = attach(&mut f);
    assert_eq!(controller.identity().model, "DxPU NVMe model");
    assert_eq!(controller.active_namespaces(&mut f).unwrap(), [1, 2]);
    for nsid in [1, 2] {
        let namespace = controller.namespace(&mut f, nsid).unwrap();
        assert_eq!(namespace.bytes(), 8 << 20);
        for (depth, chunk) in [(1, 4096), (8, 64 * 1024), (32, 128 * 1024)] {
            let mut s =
                BlockStream::open(&mut f, &mut controller, namespace, depth, chunk).unwrap();
            let data = pattern(1_000_001 + usize::from(depth));
            s.write(&mut f, 3, &mut data.as_slice(), None, &mut |_| {}).unwrap();
            let mut back = Vec::new();
            s.read(&mut f, 3, data.len() as u64, &mut back, &mut |_| {}).unwrap();
            assert!(back == data, "namespace {nsid}, depth {depth}");
            s.close(&mut f, &mut controller).unwrap();
            let file = std::fs::read(dir.path().join(format!("image{}", nsid - 1))).unwrap();
            let at = 3 * namespace.block_size() as usize;
            assert!(file[at..at + data.len()] == data);
        }
    }
    assert!(f.interrupts > 0, "completions are waited for by interrupt");
    controller.shutdown(&mut f).unwrap();
    assert_eq!(f.allocated(), 0);
}

#[test]
fn zeroes_deallocation_features_logs_and_errors() {
    let (mut f, _dir) = drive(&[BlockSize::B512]);
    let mut controller = attach(&mut f);
    let namespace = controller.namespace(&mut f, 1).unwrap();
    let mut queue = controller.create_queue_pair(&mut f, 16).unwrap();
    let timeout = Duration::from_secs(5);
    let blocks = Blocks { lba: 8, count: 8 };
    namespace.write_zeroes(&mut f, &mut queue, blocks, timeout).unwrap();
    namespace
        .deallocate(&mut f, &mut queue, &[blocks, Blocks { lba: 100, count: 3 }], timeout)
        .unwrap();
    namespace.flush(&mut f, &mut queue, timeout).unwrap();
    controller.set_feature(&mut f, 0x06, 0).unwrap();
    assert_eq!(controller.get_feature(&mut f, 0x06).unwrap(), 0);
    assert_eq!(controller.smart_log(&mut f).unwrap().temperature_kelvin, 313);
    let error = controller.log_page(&mut f, 0x70, 0, 64).unwrap_err();
    assert!(matches!(error, Error::Command { .. }), "{error}");
    assert!(!controller.error_log(&mut f, 1).unwrap().is_empty());
    controller.delete_queue_pair(&mut f, queue).unwrap();
    controller.reset(&mut f).unwrap();
    let namespace = controller.namespace(&mut f, 1).unwrap();
    let mut s = BlockStream::open(&mut f, &mut controller, namespace, 4, 8192).unwrap();
    s.write(&mut f, 0, &mut &b"after a reset"[..], None, &mut |_| {}).unwrap();
    s.close(&mut f, &mut controller).unwrap();
    controller.shutdown(&mut f).unwrap();
}
