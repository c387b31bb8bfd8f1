//! How what takes time gets on, on standard error: a bar on a terminal, lines where nobody looks at
//! one, and nothing for programs that read JSON.

use super::Output;
use super::output::Form;
use crate::types::{
    OperationKind, OperationRecord, OperationState, Step, StepName, StepState, TakeBackStage,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// How often the bar's clock goes on.
const TICK: Duration = Duration::from_millis(250);

enum How {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

/// Where it is told. A bar goes away when this is dropped: the result is printed then.
pub(super) struct Progress {
    what: String,
    how: How,
}

impl Progress {
    /// Of `what`, in the way that fits the form of the result and standard error.
    pub(super) fn new(out: &Output, what: impl Display) -> Self {
        let what = what.to_string();
        let how = match out.form {
            Form::Json => How::Nothing,
            _ if io::stderr().is_terminal() => {
                How::Bar(bar(ProgressDrawTarget::stderr(), what.clone()))
            }
            _ => How::Lines,
        };
        Self { what, how }
    }

    /// Whether there is a bar, which says itself where things stand.
    pub(super) fn is_bar(&self) -> bool {
        matches!(self.how, How::Bar(_))
    }

    /// A line that stays.
    pub(super) fn say(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.println(format!("{}: {text}", self.what)),
            How::Lines => super::complain!("{}: {text}", self.what),
            How::Nothing => {}
        }
    }

    /// Where it stands: so many of all are over, and what is going on.
    pub(super) fn at(&self, over: usize, all: usize, now: &str) {
        if let How::Bar(bar) = &self.how {
            bar.set_length(all as u64);
            bar.set_position(over as u64);
            bar.set_message(now.to_owned());
            // Only then: before, there would be a bar of nothing.
            bar.enable_steady_tick(TICK);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn bar(target: ProgressDrawTarget, what: String) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix} [{bar:20}] {pos}/{len} {elapsed} {wide_msg}");
    let style = style.expect("a template that is one").progress_chars("=> ");
    ProgressBar::with_draw_target(None, target).with_style(style).with_prefix(what)
}

/// Tells how an operation gets on.
pub(super) struct Told {
    progress: Progress,
    steps: Vec<StepState>,
    rolling_back: bool,
    warnings: usize,
    /// What was said last of what is waited for, and why that may take.
    waiting: Option<String>,
    since: Instant,
}

impl Told {
    pub(super) fn new(out: &Output, operation: &OperationRecord) -> Self {
        Self {
            progress: Progress::new(out, operation.id),
            steps: vec![StepState::Pending; operation.steps.len()],
            rolling_back: false,
            warnings: 0,
            waiting: None,
            since: Instant::now(),
        }
    }

    /// Tells what is new of it.
    pub(super) fn tell(&mut self, operation: &OperationRecord) {
        if operation.state == OperationState::RollingBack && !self.rolling_back {
            self.rolling_back = true;
            let why = operation.error.as_ref().map_or("", |problem| &problem.detail);
            self.progress.say(&format!("undone, because {why}"));
        }
        self.bar(operation);
        for (index, step) in operation.steps.iter().enumerate() {
            let before = self.steps.get(index).copied().unwrap_or(StepState::Pending);
            // A bar counts them; what could not be done stays to be read.
            if before != step.state && (!self.progress.is_bar() || step.state == StepState::Failed)
            {
                self.progress.say(&line(step));
            }
        }
        let steps = operation.steps.iter().map(|step| step.state).collect();
        let news = std::mem::replace(&mut self.steps, steps) != self.steps;
        if !news
            && !self.progress.is_bar()
            && let Some((step, why)) = waits_for(operation)
        {
            let step = format!("{} {}", step.name, step.target);
            let all = format!("{step}{why}");
            if self.waiting.as_ref() == Some(&all) {
                let seconds = self.since.elapsed().as_secs();
                self.progress.say(&format!("waiting for {step}, {seconds} s so far"));
            } else {
                self.progress.say(&format!("waiting for {all}"));
                self.waiting = Some(all);
            }
        }
        for warning in operation.warnings.iter().skip(self.warnings) {
            self.progress.say(&format!("warning: {warning}"));
        }
        self.warnings = operation.warnings.len();
    }

    /// How many steps are over and what the next one waits for.
    fn bar(&self, operation: &OperationRecord) {
        let (over, all) = operation.progress();
        let undone = if self.rolling_back { "being undone: " } else { "" };
        let waits = waits_for(operation)
            .map(|(step, why)| format!("{undone}waiting for {} {}{why}", step.name, step.target));
        self.progress.at(over, all, &waits.unwrap_or_default());
    }
}

/// The step that an operation waits for and what that may take; nothing if it has ended.
fn waits_for(operation: &OperationRecord) -> Option<(&Step, String)> {
    if operation.state.is_final() {
        return None;
    }
    let mut pending = operation.steps.iter().filter(|step| step.state == StepState::Pending);
    let step = pending.next()?;
    let asked = matches!(operation.what, OperationKind::Release { force: false, .. });
    if let OperationKind::TakeBack { stage: TakeBackStage::Notice, due, .. } = &operation.what {
        return Some((step, format!(" (the borrower has until {due})")));
    }
    let why = match (step.name, &step.detail) {
        (StepName::UnbindPort, Some(away)) if asked => {
            format!(" ({away}; it goes on when that is back, --force does not wait)")
        }
        (_, Some(away)) => format!(" ({away}; it goes on when that is back)"),
        (StepName::UnbindPort, None) if asked => {
            " (its operating system was asked by the attention button and leaves a person 5 s to \
             think again; --force does not ask)"
                .to_owned()
        }
        (StepName::Enumerate, None) => " (its operating system enables the device)".to_owned(),
        _ => String::new(),
    };
    Some((step, why))
}

fn line(step: &Step) -> String {
    let detail = step.detail.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
    format!("{} {}: {}{detail}", step.name, step.target, step.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(force: bool, states: [StepState; 2]) -> OperationRecord {
        let step = |name: &str, target: &str, state: StepState| {
            serde_json::json!({ "name": name, "binding": "bind-1", "target": target,
                "state": state, "changed": "2026-01-01T00:00:00Z" })
        };
        let record = serde_json::json!({
            "id": "op-1", "state": "running", "warnings": [], "started": "2026-01-01T00:00:00Z",
            "what": { "kind": "release", "slots": ["box-a/1"], "force": force },
            "steps": [step("unbind-port", "host-1 port 0", states[0]),
                step("unbind-slot", "box-a/1", states[1])],
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_bar_has_steps_time_and_what_is_waited_for_and_goes_away() {
        use StepState::{Done, Pending};
        let terminal = indicatif::InMemoryTerm::new(10, 120);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let how = How::Bar(bar(target, "op-1".into()));
        let progress = Progress { what: "op-1".into(), how };
        let operation = release(false, [Done, Pending]);
        let (rolling_back, warnings) = (false, 0);
        let (steps, since) = (vec![Pending; 2], Instant::now());
        let mut told = Told { progress, steps, rolling_back, warnings, waiting: None, since };
        told.tell(&operation);
        let shown = terminal.contents();
        assert!(shown.starts_with("op-1 [==========>"), "{shown}");
        assert!(
            shown.contains("] 1/2 ") && shown.contains("s waiting for unbind-slot box-a/1"),
            "{shown}"
        );
        let mut warned = release(false, [Done, StepState::Failed]);
        warned.warnings.push("the box is hot".into());
        told.tell(&warned);
        drop(told);
        let left = terminal.contents();
        assert_eq!(left, "op-1: unbind-slot box-a/1: failed\nop-1: warning: the box is hot");
    }

    #[test]
    fn a_release_says_what_it_waits_for() {
        use StepState::{Done, Pending};
        let asked = release(false, [Pending, Pending]);
        let (step, why) = waits_for(&asked).unwrap();
        assert!(step.target == "host-1 port 0" && why.contains("attention button"), "{why}");
        assert_eq!(waits_for(&release(true, [Pending, Pending])).unwrap().1, "");
        assert_eq!(waits_for(&release(false, [Done, Pending])).unwrap().0.target, "box-a/1");
        assert_eq!(waits_for(&release(false, [Done, Done])), None);
        let mut away = release(false, [Pending, Pending]);
        away.steps[0].detail = Some("host-1 has not been connected since noon".into());
        let (_, why) = waits_for(&away).unwrap();
        assert!(why.contains("since noon") && !why.contains("attention button"), "{why}");
        let ended =
            OperationRecord { state: OperationState::Failed, ..release(false, [Pending, Pending]) };
        assert_eq!(waits_for(&ended), None);
    }
}
