//! What a program under the shim gets from a driver's resolver: the driver's own answers, and for
//! what is hooked the shim's functions, one for each of the driver's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use cuda_hooks::HOOKS;
use cuda_tests::{Binding, StandIn, client, compile, oracle, runtimes, shim};

/// A question: name, version, flags.
type Question = (String, u32, u64);

/// What the program got: code, what is said of the name, the address, and the file that it is of.
#[derive(Clone, Debug)]
struct Answer {
    said: (i32, i32),
    address: String,
    file: String,
}

impl Answer {
    fn is_shims(&self) -> bool {
        self.file.ends_with("/libdxpu_perf.so")
    }
}

/// Asks a driver's resolver, under the shim or not.
fn ask(stand_in: &StandIn, driver: &Path, under: bool, questions: &[Question]) -> Vec<Answer> {
    let program = compile(stand_in, "resolve", Binding::Dlsym).unwrap();
    let mut command = stand_in.command(program);
    command.arg(driver).arg("cuGetProcAddress_v2").stdin(Stdio::piped()).stdout(Stdio::piped());
    // The shim knows the driver by its name: there is no other one beside it.
    command.env("LD_LIBRARY_PATH", driver.parent().unwrap());
    if under {
        command.env("LD_PRELOAD", shim().unwrap());
    }
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    for (name, version, flags) in questions {
        writeln!(text, "{name} {version} {flags}").unwrap();
    }
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success());
    let answer = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [code, said, _, address, file] = words[..] else { panic!("no answer: {line}") };
        let said = (code.parse().unwrap(), said.parse().unwrap());
        Answer { said, address: address.to_owned(), file: file.to_owned() }
    };
    let answers: Vec<Answer> =
        String::from_utf8(output.stdout).unwrap().lines().map(answer).collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

/// Every hooked name at each version that brought a form of anything, with both default streams;
/// names that are not hooked.
fn questions(newest: u32) -> Vec<Question> {
    let mut versions: Vec<u32> =
        HOOKS.iter().map(|hook| hook.since).filter(|since| *since <= newest).collect();
    versions.push(newest);
    versions.sort_unstable();
    versions.dedup();
    let mut names: Vec<&str> = HOOKS.iter().map(|hook| hook.name).collect();
    names.dedup();
    names.extend(["cuInit", "cuDeviceGet", "cuMemGetInfo", "cuNoSuchThing", "cudnnCreate"]);
    let mut questions = Vec::new();
    for name in names {
        for version in &versions {
            questions.extend([0, 1, 2].map(|flags| (name.to_owned(), *version, flags)));
        }
    }
    questions
}

/// Fails unless a driver's answers under the shim are its own, wrapped where they are hooked.
fn is_wrapped(driver: &Path, questions: &[Question], least: usize) {
    let stand_in = StandIn::new().unwrap();
    let bare = ask(&stand_in, driver, false, questions);
    let under = ask(&stand_in, driver, true, questions);
    // Which of the shim's functions is which of the table's.
    let (mut functions, mut shims) = (BTreeMap::new(), BTreeMap::new());
    for ((question, bare), under) in questions.iter().zip(&bare).zip(&under) {
        assert_eq!(under.said, bare.said, "{question:?}");
        let (name, version, flags) = question;
        let hook = cuda_hooks::by_version(name, *version, *flags == 2);
        if bare.file == "none" {
            assert_eq!(under.file, "none", "{question:?}");
            continue;
        }
        assert_eq!(under.is_shims(), hook.is_some(), "{question:?} is of {}", under.file);
        let Some(hook) = hook else { continue };
        let function = functions.entry(hook.symbol).or_insert(&under.address);
        assert_eq!(*function, &under.address, "{question:?}: one function has one thunk");
        let symbol = shims.entry(&under.address).or_insert(hook.symbol);
        assert_eq!(*symbol, hook.symbol, "{question:?}: one thunk is of one function");
    }
    assert!(functions.len() >= least, "{} functions", functions.len());
}

#[test]
fn what_the_stand_in_gives_is_wrapped_once() {
    let stand_in = StandIn::new().unwrap();
    // Of a version that is newer than the table the shim believes only what the driver exports, and
    // the stand-in does not export all that it gives.
    let questions = questions(cuda_hooks::newest());
    is_wrapped(&stand_in.folder().join("libcuda.so.1"), &questions, 100);
}

#[test]
fn what_nvidias_driver_gives_is_wrapped_once() {
    match oracle() {
        // Its own version.
        Ok(oracle) => is_wrapped(&oracle, &questions(12_020), 150),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

#[test]
fn what_nvidias_runtimes_look_up_is_wrapped_once() {
    let runtimes = match runtimes() {
        Ok(runtimes) => runtimes,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    for runtime in runtimes {
        let stand_in = StandIn::new().unwrap();
        let look_ups = |under: bool| {
            let mut command = stand_in.command("python3");
            command.arg(client("runtime_client.py")).arg(&runtime);
            if under {
                command.env("LD_PRELOAD", shim().unwrap());
            }
            let run = stand_in.run(command).unwrap();
            run.must_succeed();
            let names = run.look_ups.into_iter().filter(|look_up| !look_up.name.is_empty());
            let questions: BTreeSet<Question> =
                names.map(|look_up| (look_up.name, look_up.version, look_up.flags)).collect();
            (run.stdout, questions)
        };
        let (bare, under) = (look_ups(false), look_ups(true));
        // It looks up the same and comes as far.
        assert_eq!(under.0, bare.0, "{}", runtime.display());
        let missing: Vec<&Question> = bare.1.difference(&under.1).collect();
        assert_eq!(missing, Vec::<&Question>::new(), "{}", runtime.display());
        let questions: Vec<Question> = under.1.into_iter().collect();
        is_wrapped(&stand_in.folder().join("libcuda.so.1"), &questions, 100);
    }
}
