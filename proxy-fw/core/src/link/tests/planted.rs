//! Mistakes planted in the link, each of which the oracle must find; or it is no oracle.

use super::chaos::Scenario;
use super::network::Trouble;
use crate::link::faults::Fault;

/// Whether one of some seeds shows the mistake. Without it, the same seeds show nothing.
fn is_found(fault: Fault, trouble: Trouble) {
    let mut found = None;
    for seed in 0..30 {
        let right = Scenario::new(seed, trouble);
        if let Err(error) = right.run() {
            panic!("seed {seed} without a mistake: {error}");
        }
        let wrong = Scenario { fault: Some(fault), ..Scenario::new(seed, trouble) };
        if let Err(error) = wrong.run() {
            found = Some((seed, error));
            break;
        }
    }
    let (seed, error) = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
    std::println!("{fault:?} found with seed {seed}: {error}");
}

#[test]
fn order_that_is_not_kept_is_found() {
    is_found(Fault::IgnoreOrder, Trouble::default());
}

#[test]
fn an_epoch_that_is_not_looked_at_is_found() {
    is_found(Fault::IgnoreEpoch, Trouble { jitter_us: 3000, ..Trouble::default() });
}

#[test]
fn duplicates_that_are_taken_are_found() {
    is_found(Fault::IgnoreDuplicates, Trouble { duplication: 200, ..Trouble::default() });
}

#[test]
fn acknowledging_before_storing_is_found() {
    is_found(Fault::AcknowledgeEarly, Trouble { loss: 100, ..Trouble::default() });
}

#[test]
fn forgotten_credit_is_found() {
    is_found(Fault::ForgetCredit, Trouble::default());
}

#[test]
fn losses_that_are_not_repaired_are_found() {
    is_found(Fault::ForgetLoss, Trouble { loss: 100, ..Trouble::default() });
}

#[test]
fn a_tlp_crc_that_is_not_looked_at_is_found() {
    is_found(Fault::IgnoreTlpCrc, Trouble { lies: 200, ..Trouble::default() });
}
