use super::*;
use crate::config::Settings;
use crate::control::session::Identity;
use crate::records::Records;
use crate::store::{Change, Record, Store, StoreError, Table};
use crate::types::{Role, RolloutId, RolloutState, Timestamp};
use proxy_core::control::Term;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use tlp_codec::ids::NodeId;

/// A store that takes its first write, and of the next ones says only when it is told to that it
/// cannot.
struct Failing {
    writes: Mutex<u32>,
    told: Mutex<Receiver<()>>,
}

impl Store for Failing {
    fn read(&self, _: Table) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    fn commit(&self, _: &[Change]) -> Result<(), StoreError> {
        let mut writes = self.writes.lock().unwrap();
        *writes += 1;
        if *writes == 1 {
            return Ok(());
        }
        self.told.lock().unwrap().recv().unwrap();
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        Err(StoreError::io(Path::new("memory"), "written", full))
    }
}

#[tokio::test]
async fn a_card_whose_restart_cannot_be_recorded_is_lent_again() {
    let (tell, told) = channel();
    let store = Failing { writes: Mutex::default(), told: Mutex::new(told) };
    let records = Records::open(Arc::new(store), Path::new("memory")).unwrap();
    let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
    let node = NodeName::new("card1").unwrap();
    let identity = Identity {
        name: node.clone(),
        role: Role::Box,
        size: 1,
        node: NodeId::new(1).unwrap(),
        incarnation: 7,
        paths: Vec::new(),
        mtu: 1500,
        remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        since: Timestamp::now(),
    };
    let (card, _queue) = Session::new(identity, Term(1));
    let card = Arc::new(card);
    manager.registry.enter(&card).map_err(drop).unwrap();
    card.set_ready();
    let rollout = RolloutRecord {
        id: RolloutId(1),
        former: None,
        what: RolloutKind::RollBack,
        state: RolloutState::Running,
        wave_size: 1,
        interrupt: false,
        within_s: 60,
        cards: Vec::new(),
        started: Timestamp::now(),
        ended: None,
    };
    // The restart stands on a change that is on its way to the disk.
    let event = EventRecord::new(EventKind::Trouble, "none");
    let ((), unwritten) = manager.records.make(|txn| txn.event(event)).await;
    let turn = Turn::of(&manager, &node);
    let life = (7, ImageId([0; 16]));
    let restarted = restart(&manager, &rollout, &turn, &node, life, Instant::now());
    let fails = async {
        while !card.is_leaving() {
            tokio::task::yield_now().await;
        }
        tell.send(()).unwrap();
    };
    let (restarted, ()) = tokio::join!(restarted, fails);
    assert!(matches!(restarted, Err(Stop::NotYet)));
    assert!(!card.is_leaving(), "it was not told to restart");
    assert!(unwritten.written().await.is_err());
}
