//! A manager in memory, with a small pool that it remembers: nobody is connected.

use manager::config::Settings;
use manager::manager::{Manager, Queues};
use manager::metrics::Metrics;
use manager::records::{Records, Txn};
use manager::store::{Change, Record, Store, StoreError, Table};
use manager::types::{
    DeviceRecord, DeviceState, FunctionAddress, NodeName, NodeRecord, PciIdentity, Role,
    SlotAddress,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tlp_codec::ids::{SlotFunction, SlotId};

/// Values by table and key.
type Contents = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// A store in memory.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Contents>);

impl Store for Memory {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let records = self.0.lock().expect("no one panics while holding it");
        let of_table = records.iter().filter(|((of, _), _)| *of == table);
        Ok(of_table.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        let mut records = self.0.lock().expect("no one panics while holding it");
        for Change { table, key, value } in changes.iter().cloned() {
            match value {
                Some(value) => records.insert((table, key), value),
                None => records.remove(&(table, key)),
            };
        }
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}

/// Runs something with clocks that go on by themselves when nothing else does.
pub(crate) fn run<R>(what: impl Future<Output = R>) -> R {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("it needs nothing of the system").block_on(what)
}

/// A manager whose records know two boxes of four slots and two hosts of four ports.
pub(crate) async fn manager() -> (Arc<Manager>, Queues) {
    let store = Arc::new(Memory::default());
    let records = Records::open(store, Path::new("/nonexistent/pool")).expect("it is empty");
    let entered = records.apply(|txn| {
        for (name, role) in
            [("box1", Role::Box), ("box2", Role::Box), ("host1", Role::Host), ("host2", Role::Host)]
        {
            let name = NodeName::new(name).expect("it is a name");
            enter(txn, &name, role);
        }
    });
    entered.await.expect("memory can be written");
    Manager::new(records, Settings::default(), Arc::new(Metrics::default()))
}

fn enter(txn: &mut Txn, name: &NodeName, role: Role) {
    let now = txn.now();
    let node = txn.new_node_id().expect("there are some");
    let record = NodeRecord::new(name.clone(), node, role, 4, now);
    txn.put_node(record);
    if role == Role::Host {
        return;
    }
    for number in 1..=3 {
        let slot = SlotId::new(number).expect("they begin with 1");
        let slot = SlotAddress::new(name.clone(), slot).expect("they begin with 1");
        txn.put_device(DeviceRecord {
            address: FunctionAddress { slot, function: SlotFunction::ZERO },
            state: DeviceState::Free,
            model: "nvme".into(),
            pci: PciIdentity {
                vendor: 0x1af4,
                device: 0x1000,
                subsystem_vendor: 0x1af4,
                subsystem: 1,
                class: 0x01_0802,
                revision: 1,
            },
            serial: u64::from(node.get()) << 8 | u64::from(number),
            bars: [16384, 0, 0, 0, 0, 0],
            since: now,
        });
    }
}
