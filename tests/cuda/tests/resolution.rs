//! The resolver: the stand-in's and the hook table against NVIDIA's own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use cuda_hooks::HOOKS;
use cuda_tests::{Binding, LookUp, StandIn, client, compile, oracle, runtimes};

/// A question: name, version, flags.
type Question = (String, u32, u64);

/// An answer: the code, what is said of the name, and the symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    code: i32,
    said: i32,
    symbol: String,
}

/// Asks the resolver `symbol` of a library.
fn ask(stand_in: &StandIn, library: &Path, symbol: &str, questions: &[Question]) -> Vec<Answer> {
    let program = compile(stand_in, "resolve", Binding::Dlsym).unwrap();
    let mut command = Command::new(program);
    command.arg(library).arg(symbol).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text: String = questions
        .iter()
        .map(|(name, version, flags)| format!("{name} {version} {flags}\n"))
        .collect();
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success());
    let answers: Vec<Answer> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut number = || words.next().unwrap().parse().unwrap();
            let (code, said) = (number(), number());
            Answer { code, said, symbol: words.next().unwrap().to_owned() }
        })
        .collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

/// Every hooked form at its own version, one earlier, and one later; what there is not, and flags
/// that there are not.
fn questions(newest: u32) -> Vec<Question> {
    let mut questions = Vec::new();
    for hook in HOOKS.iter().filter(|hook| hook.since <= newest) {
        for version in [hook.since - 10, hook.since, hook.since + 10, newest] {
            for flags in [0, 1, 2, 3] {
                questions.push((hook.name.to_owned(), version, flags));
            }
        }
        questions.push((hook.symbol.to_owned(), newest, 0));
    }
    for name in ["cuNoSuchThing", "cuda", "cuMemAlloc_v2", "cuLaunchKernel_ptsz"] {
        questions.push((name.to_owned(), newest, 0));
    }
    for flags in [4, 8, 5] {
        questions.push(("cuMemAlloc".to_owned(), newest, flags));
    }
    questions
}

#[test]
fn nvidias_resolver_agrees_with_the_hook_table_and_the_stand_in() {
    let oracle = match oracle() {
        Ok(oracle) => oracle,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    // Its own version.
    const NEWEST: u32 = 12020;
    let stand_in = StandIn::new().unwrap();
    let ours = stand_in.folder().join("libcuda.so.1");
    // Nothing of what came after it is hooked in another form.
    let questions: Vec<Question> =
        questions(NEWEST).into_iter().filter(|(_, version, _)| *version <= NEWEST).collect();
    for resolver in ["cuGetProcAddress_v2", "cuGetProcAddress"] {
        let real = ask(&stand_in, &oracle, resolver, &questions);
        let stood_in = ask(&stand_in, &ours, resolver, &questions);
        let mut found = 0;
        for ((question, real), stood_in) in questions.iter().zip(&real).zip(&stood_in) {
            let (name, version, flags) = question;
            assert_eq!((real.code, real.said), (stood_in.code, stood_in.said), "{question:?}");
            if *flags > 3 || real.symbol == "none" {
                continue;
            }
            found += 1;
            let hook = cuda_hooks::by_version(name, *version, flags & 2 != 0).unwrap();
            assert_eq!(real.symbol, hook.symbol, "{question:?}");
            // A function that the stand-in does not have is in no list of symbols.
            if stood_in.symbol != "?" {
                assert_eq!(real.symbol, stood_in.symbol, "{question:?}");
            }
        }
        assert!(found > 2000, "{found}");
    }
}

#[test]
fn nvidias_runtime_looks_up_all_that_it_knows() {
    let runtimes = match runtimes() {
        Ok(runtimes) => runtimes,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    for runtime in runtimes {
        let stand_in = StandIn::new().unwrap();
        let mut command = stand_in.command("python3");
        command.arg(client("runtime_client.py")).arg(&runtime);
        let run = stand_in.run(command).unwrap();
        run.must_succeed();
        // It has found out that the driver is not NVIDIA's.
        assert!(run.stdout.starts_with("done "), "{}", run.stdout);
        assert!(!run.stdout.starts_with("done 0 "), "{}", run.stdout);
        let look_ups: Vec<&LookUp> =
            run.look_ups.iter().filter(|look_up| !look_up.name.is_empty()).collect();
        assert!(look_ups.len() > 350, "{}: {}", runtime.display(), look_ups.len());
        // Names of headers beside cuda.h are not known: OpenGL's, EGL's, VDPAU's, the profiler's.
        let unknown: Vec<&str> = look_ups
            .iter()
            .filter(|look_up| !look_up.found)
            .map(|look_up| look_up.name.as_str())
            .collect();
        assert!(unknown.len() < look_ups.len() / 8, "{unknown:?}");
        for name in unknown {
            let is_hooked = HOOKS.iter().any(|hook| hook.name == name);
            assert!(!is_hooked, "{name} is not known");
        }
        for hook in ["cuLaunchKernel", "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuGraphLaunch"]
        {
            assert!(look_ups.iter().any(|look_up| look_up.name == hook), "{hook}");
        }
    }
}
