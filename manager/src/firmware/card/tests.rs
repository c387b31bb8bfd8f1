use super::*;
use crate::config::Settings;
use crate::control::session::Identity;
use crate::records::Records;
use crate::store::{Change, Record, Store, StoreError, Table, Taking};
use crate::types::{Role, RolloutId, RolloutState, Timestamp};
use proxy_core::control::{FirmwareSlot, OperationId, Term};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use tlp_codec::ids::NodeId;
use tokio::sync::mpsc::Receiver as Queue;

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

/// A card in its seventh life that is connected and ready, and what is said to it.
fn card(manager: &Manager) -> (Arc<Session>, Queue<Box<[u8]>>) {
    let identity = Identity {
        name: NodeName::new("card1").unwrap(),
        role: Role::Box,
        size: 1,
        node: NodeId::new(1).unwrap(),
        incarnation: 7,
        paths: Vec::new(),
        mtu: 1500,
        remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        since: Timestamp::now(),
    };
    let (card, queue) = Session::new(identity, Term(1));
    let card = Arc::new(card);
    manager.registry.enter(&card).map_err(drop).unwrap();
    card.set_ready();
    (card, queue)
}

fn rollout() -> RolloutRecord {
    RolloutRecord {
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
    }
}

#[tokio::test]
async fn a_card_whose_restart_cannot_be_recorded_is_lent_again() {
    let (tell, told) = channel();
    let store = Failing { writes: Mutex::default(), told: Mutex::new(told) };
    let records = Records::open(Arc::new(store), Path::new("memory")).unwrap();
    let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
    let ((card, _queue), rollout) = (card(&manager), rollout());
    let node = card.name().clone();
    // The restart stands on a change that is on its way to the disk.
    let event = EventRecord::new(EventKind::Trouble, "none");
    let ((), unwritten) = manager.records.make(|txn| txn.event(event)).await;
    let turn = Turn::of(&manager, &node);
    let life = (7, ImageId([0; 16]));
    let mut leaving = None;
    let restarted = restart(&manager, &rollout, &turn, &mut leaving, &node, life, Instant::now());
    let fails = async {
        while !card.is_leaving() {
            tokio::task::yield_now().await;
        }
        tell.send(()).unwrap();
    };
    let (restarted, ()) = tokio::join!(restarted, fails);
    assert!(matches!(restarted, Err(Stop::NotYet(_))));
    assert!(!card.is_leaving(), "it was not told to restart");
    assert!(unwritten.written().await.is_err());
}

/// It says so, and goes when it can.
#[tokio::test(start_paused = true)]
async fn a_card_that_was_told_to_restart_gets_nothing_new_until_it_is_gone() {
    let records = Records::open(Arc::new(Taking), Path::new("memory")).unwrap();
    let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
    let ((card, mut queue), rollout) = (card(&manager), rollout());
    let node = card.name().clone();
    let turn = Turn::of(&manager, &node);
    let life = (7, ImageId([0; 16]));
    let mut leaving = None;
    let refused = || Err(ControlError::Firmware(FirmwareError::Flash));
    for (number, answer) in [(1, Ok(Box::new(Reply::Done))), (2, refused())] {
        let since = Instant::now();
        let restarted = restart(&manager, &rollout, &turn, &mut leaving, &node, life, since);
        let answers = async {
            queue.recv().await.unwrap();
            assert!(card.answered(OperationId(number), answer));
        };
        let (restarted, ()) = tokio::join!(restarted, answers);
        assert!(matches!(restarted, Err(Stop::Away | Stop::Flash)));
        assert!(card.is_leaving(), "it goes at any moment, whatever it says the second time");
    }
    drop(leaving);
    assert!(!card.is_leaving());
}

/// It waited for its wave, and its boot loader went to the other image meanwhile.
#[tokio::test]
async fn what_a_card_goes_back_from_is_asked_when_its_turn_begins() {
    let records = Records::open(Arc::new(Taking), Path::new("memory")).unwrap();
    let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
    let (card, mut queue) = card(&manager);
    let node = card.name().clone();
    let slot = |image: u8| SlotFirmware {
        state: FirmwareState::Healthy,
        image: ImageId([image; 16]).into(),
        version: None,
    };
    let status = FirmwareStatus {
        board: "board".try_into().unwrap(),
        room: 1 << 20,
        lowest_security: 0,
        running: FirmwareSlot::B,
        wanted: FirmwareSlot::B,
        slots: [slot(1), slot(2)],
    };
    let waiting = RolloutCard {
        node: node.clone(),
        state: CardState::Waiting,
        wave: None,
        before: Some("1.0.0".into()),
        before_image: Some(ImageId([1; 16])),
        runs: None,
    };
    let mut record = RolloutRecord { cards: vec![waiting], ..rollout() };
    super::super::begin_wave(&mut record, std::slice::from_ref(&node));
    manager.records.apply(|txn| txn.put_rollout(record.clone())).await.unwrap();
    let answers = async {
        queue.recv().await.unwrap();
        assert!(card.answered(OperationId(1), Ok(Box::new(Reply::Firmware(status)))));
    };
    let turn = Turn::of(&manager, &node);
    let (next, ()) = tokio::join!(write(&manager, &record, &turn, &node, Instant::now()), answers);
    let Ok(Some(next)) = next else { panic!("it goes on") };
    assert_eq!(next.state, CardState::Writing, "it was not told to go back yet");
    super::record(&manager, &node, next).await;
    let rollout = manager.records.snapshot().rollout().cloned().unwrap();
    assert_eq!(rollout.card(&node).unwrap().before_image, Some(ImageId([2; 16])));
}
