//! Every mistake that can be planted in the proxies is found within a stated number of seeds, and
//! the same seeds find nothing where there is none.

use proxy_core::canaries::{Canary, plant};
use sim::profile::Profile;
use sim::run::{Run, keep_panics};

/// The profile that finds a mistake, and within how many seeds.
const fn found_by(canary: Canary) -> (&'static str, u64) {
    match canary {
        Canary::IgnoreOrder => ("calm", 4),
        Canary::IgnoreEpoch => ("release", 60),
        Canary::IgnoreDuplicates => ("lossy", 4),
        Canary::AcknowledgeEarly => ("lossy", 4),
        Canary::ForgetCredit => ("calm", 4),
        Canary::ForgetLoss => ("lossy", 4),
        Canary::IgnoreTlpCrc | Canary::IgnoreSplitCrc => ("memory", 10),
        Canary::RefuseLateAck => ("paths", 60),
        Canary::NothingForClosed => ("release", 200),
        Canary::IgnoreLimit => ("shares", 4),
        Canary::EndlessTurn => ("shares", 20),
        Canary::IgnorePathSet | Canary::ForgetPath => ("paths", 4),
        Canary::UseDeadPaths => ("paths", 10),
        Canary::AnswerByQuickest => ("paths", 300),
        Canary::DropCompletionTimer => ("devices", 10),
        Canary::ReuseQuarantinedTag => ("slow", 60),
        Canary::EndSplitEarly => ("calm", 4),
        Canary::CompleteTwice => ("calm", 4),
        Canary::DropWhenFull => ("lossy", 10),
        Canary::ForgetTag => ("calm", 4),
        Canary::LeakTag => ("reset", 60),
        Canary::KeepRoom => ("calm", 4),
        Canary::PassHeld | Canary::DropHeld => ("peers", 20),
        Canary::IgnoreRequestRedirect | Canary::IgnoreCompletionRedirect => ("peers", 10),
        Canary::PassNothing => ("calm", 4),
        Canary::KeepStale | Canary::KeepQueueAtPerst => ("reset", 60),
        Canary::KeepTagsAtFlr | Canary::FlrForAll => ("reset", 60),
        Canary::ForgetProgress => ("devices", 10),
        Canary::KeepStuck => ("hung", 20),
        Canary::KeepWindows => ("reset", 4),
        Canary::RefuseAsNobody => ("devices", 10),
        Canary::TakeNobodys => ("devices", 20),
        Canary::FailNeighbours => ("functions", 20),
        Canary::AskOnce => ("nodes", 4),
        Canary::SkipReset => ("nodes", 10),
        Canary::IgnoreTerm => ("manager", 100),
        Canary::SwallowAnswer => ("manager", 4),
        Canary::StaleDigest | Canary::IgnoreHints | Canary::DropPoisoned => ("kinds", 4),
        Canary::ForgetClass | Canary::KeepWires => ("kinds", 20),
        Canary::TellFirst => ("kinds", 4),
        Canary::DropUncounted => ("memory", 4),
        Canary::TrustSilent => ("slow", 20),
        Canary::LoseLateAnswer => ("devices", 60),
        Canary::MasterAlways | Canary::RefuseAnswers | Canary::KeepPlaces => ("configuration", 4),
    }
}

#[test]
fn every_canary_is_heard() {
    keep_panics();
    let mut deaf = Vec::new();
    for canary in Canary::ALL {
        let (name, seeds) = found_by(canary);
        let profile = Profile::find(name).expect("it is built in");
        plant(Some(canary));
        let found =
            (0..seeds).find_map(|seed| Some((seed, Run::new(seed, &profile).go().violation?)));
        plant(None);
        match found {
            None => deaf.push(format!("{canary:?}: not found by {seeds} seeds of {name}")),
            Some((seed, violation)) => {
                println!("{canary:?}: seed {seed} of {name}: {}", violation.what);
                let right = Run::new(seed, &profile).go().violation;
                assert_eq!(right, None, "seed {seed} of {name} without {canary:?}");
            }
        }
    }
    // The hook that keeps panics says nothing.
    deaf.iter().for_each(|canary| println!("{canary}"));
    assert!(deaf.is_empty(), "{deaf:#?}");
}
