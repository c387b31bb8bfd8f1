//! Every input that the fuzzer, or a person, found worth keeping, run again.

use std::path::Path;

/// The inputs of a target, by their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{} has no corpus: {error}", folder.display()));
    let mut inputs: Vec<_> = files
        .map(|file| {
            let path = file.expect("the folder can be read").path();
            let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("an input can be read"))
        })
        .collect();
    inputs.sort();
    inputs
}

fn replay(target: &str) {
    let (_, run) = fuzz_targets::TARGETS.iter().find(|(name, _)| *name == target).expect("known");
    let inputs = corpus(target);
    assert!(inputs.len() >= 10, "the corpus of {target} has only {} inputs", inputs.len());
    for (name, input) in inputs {
        // What panics says where; this says with what.
        let whole = std::panic::catch_unwind(|| run(&input));
        assert!(whole.is_ok(), "tests/fuzz/corpus/{target}/{name}");
    }
    // The empty one, and one that is longer than any.
    run(&[]);
    run(&[0xff; 70_000]);
}

macro_rules! replayed {
    ($($target:ident)*) => {
        $(
            #[test]
            fn $target() {
                replay(stringify!($target));
            }
        )*

        /// A target that is added is replayed, too, and has a program.
        #[test]
        fn every_target_is_here() {
            let here = [$(stringify!($target)),*];
            let names: Vec<&str> = fuzz_targets::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(here[..], names[..]);
            for name in names {
                let program = format!("libfuzzer/fuzz_targets/{name}.rs");
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&program);
                let text = std::fs::read_to_string(path).unwrap_or_default();
                assert!(text.contains(&format!("fuzz_targets::{name}::run")), "{program}");
            }
        }
    };
}

replayed!(
    api boot cli control frame image link link_bytes manager_control nvme records slot socket switch tlp
    trace vfio_user
);
