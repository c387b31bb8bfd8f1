use super::*;
use crate::config::Settings;
use crate::erasure::{begin, request};
use crate::records::Records;
use crate::store::Taking;
use crate::types::{EraseRule, SlotAddress};

/// All turns are taken when a manager is back that died with its programs at work.
#[tokio::test]
async fn a_program_that_went_with_an_earlier_manager_does_not_keep_its_device() {
    let records = Records::open(Arc::new(Taking), Path::new("memory")).unwrap();
    let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
    let slot: SlotAddress = "box1/1".parse().unwrap();
    let function = FunctionEpoch {
        function: tlp_codec::ids::SlotFunction::ZERO,
        epoch: Epoch::new(0, 2).unwrap(),
    };
    let rule = EraseRule {
        class: None,
        model: None,
        means: Vec::new(),
        hook: Some("/bin/true".into()),
        within_s: 60,
        required: true,
    };
    let begun = manager.records.apply(|txn| {
        let id = begin(txn, std::slice::from_ref(&rule), &slot, &[function], None).unwrap();
        let record = ErasureRecord::clone(&txn.erasures()[&id]);
        txn.put_erasure(ErasureRecord { program_runs: true, ..record });
        txn.erasures()[&id].clone()
    });
    let record = begun.await.unwrap();
    let hooks = Semaphore::new(0);
    let waives = async {
        while manager.records.snapshot().erasures()[&record.id].program_runs {
            tokio::task::yield_now().await;
        }
        manager.records.apply(|txn| request::waive(txn, &slot, "x")).await.unwrap()
    };
    let waives = tokio::time::timeout(Duration::from_secs(5), waives);
    let waived = tokio::select! {
        _ = look(&manager, &hooks, &record) => panic!("it has no turn"),
        waived = waives => waived,
    };
    assert_eq!(waived.expect("it can be waived").unwrap().state, ErasureState::Waived);
}
