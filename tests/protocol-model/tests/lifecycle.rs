//! What becomes of a device, explored; and the tables of operations and erasures beside what was.

use protocol_model::lifecycle::{Forgetful, Lifecycle, Made, erasure_table, operation_table};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::sync::Mutex;

fn explore(mistake: Option<Forgetful>) -> impl Checker<Lifecycle> {
    let checker = Lifecycle::new(mistake).checker().threads(2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{mistake:?}: {} states", checker.unique_state_count());
    checker
}

fn made(made: &Mutex<Made>) -> BTreeSet<(String, String)> {
    made.lock().unwrap().keys().cloned().collect()
}

#[test]
fn nobody_gets_another_s_data_and_the_code_does_what_its_tables_say() {
    let checker = explore(None);
    checker.assert_properties();
    assert!(checker.unique_state_count() > 500, "there is more than that");
    let model = checker.model();
    assert_eq!(made(&model.operations), operation_table());
    assert_eq!(made(&model.erasures), erasure_table());
}

#[test]
fn a_planted_mistake_is_found() {
    for mistake in [Forgetful::WaivesWhatIsPulled, Forgetful::ErasesByTheRecords] {
        let checker = explore(Some(mistake));
        let found = checker.discovery("nobody gets another's data").expect("it is found");
        println!("{mistake:?}: {:?}", found.into_actions());
    }
}
