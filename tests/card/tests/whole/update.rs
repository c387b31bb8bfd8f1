//! A host card that starts again, as after each update.

use crate::images::{Label, relabelled};
use crate::scene::{BOUND, Cards, Scene, firmware};
use card_image::Role;
use processes::wait_for;

#[test]
fn a_host_card_that_is_updated_has_its_root_complex_again_and_its_devices() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Plain).unwrap();
    scene.lend("accelerator");
    let new = relabelled(&firmware.image(Role::Host).unwrap(), Label::version(2)).unwrap();
    let file = scene.path("2.img");
    std::fs::write(&file, new).unwrap();
    let file = file.to_str().unwrap();
    scene.manager(&["firmware", "push", file, "--node", "card-host", "--interrupt"]).unwrap();
    scene.until("the new image", &["firmware", "list"], "2.0.0+0").unwrap();
    // The binding is there still; the host finds its device anew.
    wait_for("the device", BOUND, || {
        let reads = scene.host(&["latency", "03:00.0", "--reads", "100"]);
        Ok(reads.is_ok().then_some(()))
    })
    .unwrap();
    let nodes = scene.manager(&["nodes"]).unwrap();
    assert!(!nodes.contains("no root complex"), "{nodes}");
    // And so it does one that is lent to the new life.
    scene.manager(&["allocate", "--host", "card-host", "--model", "nvme"]).unwrap();
    scene.host(&["wait", "--devices", "2", "--seconds", "60"]).unwrap();
}
