//! Steps that run beside others, in a thread of their own, one after the other.
//!
//! What is printed goes between the lines of the others.

use std::thread::{self, JoinHandle};

use anyhow::Result;

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

/// Runs some steps, and others beside them. Says whether none of any failed.
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
    let ended = others.join().expect("a step does not panic");
    // All are taken down, also behind one that failed.
    ended.into_iter().fold(went_on, |all, ended| report.add(ended) && all)
}

/// This thread, and what it starts, run only where a processor has nothing else to do (sched(7),
/// SCHED_IDLE). Where that cannot be had they run as everything does.
fn take_the_rest() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the parameter, which outlives it; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scheduling policy of a program that this thread starts.
    fn policy() -> String {
        let stat = crate::tools::output(std::process::Command::new("cat").arg("/proc/self/stat"));
        // Field 41 of proc_pid_stat(5), the first of which are the number and the name in brackets.
        let stat = stat.unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
    }

    #[test]
    fn what_runs_on_the_rest_does_so_with_all_that_it_starts_and_nothing_else_does() {
        let mut report = Report::new();
        let rest = || {
            assert_eq!(policy(), libc::SCHED_IDLE.to_string());
            Ok(Done::default())
        };
        let even = || {
            assert_ne!(policy(), libc::SCHED_IDLE.to_string());
            Ok(Done::default())
        };
        assert!(beside(&mut report, Share::Rest, vec![("a", rest)], |_| even().is_ok()));
        assert!(beside(&mut report, Share::Even, vec![("b", even)], |_| true));
    }

    #[test]
    fn all_that_failed_is_heard_of() {
        let failing = || anyhow::bail!("it does");
        let passing = || Ok(Done::default());
        let mut report = Report::new();
        let steps = || vec![("fails", failing as fn() -> Result<Done>), ("passes", passing)];
        assert!(!beside(&mut report, Share::Even, steps(), |_| true));
        assert!(!beside(&mut report, Share::Even, vec![("passes", passing)], |_| false));
        assert!(beside(&mut report, Share::Even, vec![("passes", passing)], |_| true));
    }
}
