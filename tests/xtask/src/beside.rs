//! Steps that run beside others, in a thread of their own, one after the other.
//!
//! What is printed goes between the lines of the others.

use std::thread::{self, JoinHandle};

use anyhow::{Result, bail};

use crate::report::{Done, Ended, Report};

/// A step's name, and what it does.
pub(crate) type Step = (&'static str, fn() -> Result<Done>);

/// What of the processors' time such steps get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// As much as the others.
    Even,
    /// What the others leave: those wait for things to happen in time, and see nothing of steps that
    /// only compute.
    Rest,
}

/// Runs some steps, and others beside them, and waits for all. Says what the steps do: nothing needs
/// the others.
pub(crate) fn beside(
    report: &mut Report,
    share: Share,
    others: Vec<Step>,
    steps: impl FnOnce(&mut Report) -> bool,
) -> bool {
    let others: JoinHandle<Vec<Ended>> = thread::spawn(move || {
        if share == Share::Rest {
            take_the_rest();
        }
        let run = |(name, step): Step| {
            println!("\n== {name}, beside what follows");
            Ended::of(name, step)
        };
        others.into_iter().map(run).collect()
    });
    let went_on = steps(report);
    let failed = |_| vec![Ended::of("steps beside others", || bail!("one panicked; see above"))];
    for ended in others.join().unwrap_or_else(failed) {
        report.add(ended);
    }
    went_on
}

/// This thread, and what it starts, run only where a processor has nothing else to do (sched(7),
/// SCHED_IDLE). Says whether that can be had; else they run as everything does.
fn take_the_rest() -> bool {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the parameter, which outlives it; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitCode;

    /// The scheduling policy of a program that this thread starts.
    fn policy() -> String {
        let stat = crate::tools::output(std::process::Command::new("cat").arg("/proc/self/stat"));
        // Field 41 of proc_pid_stat(5), the first of which are the number and the name in brackets.
        let stat = stat.unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
    }

    #[test]
    fn what_takes_the_rest_does_so_with_all_that_it_starts() {
        let mine = policy();
        let its = thread::spawn(|| take_the_rest().then(policy)).join().unwrap();
        match its {
            Some(its) => assert_eq!(its, libc::SCHED_IDLE.to_string()),
            None => println!("SKIPPED: the kernel refuses SCHED_IDLE"),
        }
        assert_eq!(policy(), mine);
    }

    /// What the steps beside others said is in the report, and what follows goes by the others.
    #[test]
    fn all_that_failed_is_heard_of_and_keeps_nothing_from_running() {
        let failing = || bail!("it does");
        let passing = || Ok(Done::default());
        let panicking = || panic!("it does");
        let cases: [(Step, bool, ExitCode); 4] = [
            (("passes", passing), true, ExitCode::SUCCESS),
            (("passes", passing), false, ExitCode::SUCCESS),
            (("fails", failing), true, ExitCode::FAILURE),
            (("panics", panicking), true, ExitCode::FAILURE),
        ];
        for (step, others, code) in cases {
            let mut report = Report::new();
            let steps = vec![step, ("passes", passing)];
            assert_eq!(beside(&mut report, Share::Even, steps, |_| others), others);
            assert_eq!(report.finish(), code);
        }
    }
}
