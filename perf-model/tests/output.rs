//! What becomes of output that nobody reads to its end, and of files that there is no room for.

use std::process::{Command, Stdio};

#[test]
fn a_file_that_there_is_no_room_for_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, page] = ["trace.csv", "page.html"].map(|name| folder.path().join(name));
    std::fs::write(&trace, "start_ns,duration_ns,kind,stream\n0,1000,kernel,1\n").unwrap();
    std::fs::write(&page, "the old one").unwrap();
    // As on a full disk, each byte that is written to a file is one too many.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" predict \"$1\" --html \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_dxpu-perf")]).args([&trace, &page]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("page.html cannot be written"), "{error}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "the old one");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn whoever_has_seen_enough_makes_no_error() {
    for arguments in [&["paper"][..], &["paper", "--output", "json"], &["model", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-perf"));
        let output =
            command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "{arguments:?}");
    }
}
