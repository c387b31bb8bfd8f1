//! Where in the store each record is, and in which bytes.
//!
//! Whoever writes a record, takes it out, reads it at a start or looks at it in a check goes by this,
//! so that they cannot disagree. Records are taken out by what they are known by: one that stood
//! under another key would be there again at the next start.

use super::tables::{EpochRecord, ForgottenRecord};
use super::{KeyRecord, Meta};
use crate::store::{Record, Table};
use crate::types::text::plain;
use crate::types::{
    AllocationId, AllocationRecord, AuditRecord, BindingId, BindingRecord, DeviceRecord, ErasureId,
    ErasureRecord, EventRecord, FunctionAddress, HealthRecord, HoldRecord, ImageId, ImageLabel,
    ImageRecord, InventoryRecord, ModelRecord, NodeName, NodeRecord, OperationId, OperationRecord,
    Place, RolloutRecord, Subject, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tlp_codec::ids::NodeId;

/// What records of a table are known by.
pub(super) trait Key {
    /// As a key of the store.
    fn key(&self) -> Vec<u8>;
}

/// Numbers, in their order.
macro_rules! numbers {
    ($($name:ident),+) => { $(impl Key for $name {
        fn key(&self) -> Vec<u8> {
            self.0.to_be_bytes().to_vec()
        }
    })+ };
}

numbers!(AllocationId, BindingId, OperationId, ErasureId);

impl Key for u64 {
    fn key(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }
}

impl Key for NodeId {
    fn key(&self) -> Vec<u8> {
        self.get().to_be_bytes().to_vec()
    }
}

impl Key for ImageId {
    fn key(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// Names, as they are written.
macro_rules! names {
    ($($name:ident),+) => { $(impl Key for $name {
        fn key(&self) -> Vec<u8> {
            self.to_string().into_bytes()
        }
    })+ };
}

names!(NodeName, FunctionAddress, Place, Subject, str);

/// A record of a table.
pub(super) trait Stored: Sized + Send + Sync + 'static {
    /// The table.
    const TABLE: Table;
    /// What it is known by there.
    type Id: Key + ?Sized;

    /// What it is known by.
    fn id(&self) -> &Self::Id;

    /// Its bytes.
    fn encode(&self) -> Vec<u8>;

    /// From its bytes.
    fn decode(value: &[u8]) -> Result<Self, String>;
}

fn to_json(record: &impl Serialize) -> Vec<u8> {
    // Our own records have no maps with keys other than text and no failing serializers.
    serde_json::to_vec(record).expect("records are JSON")
}

fn from_json<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

macro_rules! stored {
    ($($name:ident in $table:ident: $id:ty = |$record:ident| $own:expr;)+) => {
        $(impl Stored for $name {
            const TABLE: Table = Table::$table;
            type Id = $id;

            fn id(&self) -> &$id {
                let $record = self;
                $own
            }

            fn encode(&self) -> Vec<u8> {
                to_json(self)
            }

            fn decode(value: &[u8]) -> Result<Self, String> {
                from_json(value)
            }
        })+
    };
}

stored! {
    NodeRecord in Nodes: NodeName = |node| &node.name;
    DeviceRecord in Devices: FunctionAddress = |device| &device.address;
    EpochRecord in Epochs: FunctionAddress = |epoch| &epoch.address;
    AllocationRecord in Allocations: AllocationId = |allocation| &allocation.id;
    BindingRecord in Bindings: BindingId = |binding| &binding.id;
    OperationRecord in Operations: OperationId = |operation| &operation.id;
    EventRecord in Events: u64 = |event| &event.sequence;
    RolloutRecord in Rollout: str = |_rollout| "rollout";
    HoldRecord in Holds: Place = |hold| &hold.place;
    HealthRecord in Health: Subject = |health| &health.subject;
    ModelRecord in Models: str = |model| &model.model;
    AuditRecord in Audit: u64 = |entry| &entry.sequence;
    ErasureRecord in Erasures: ErasureId = |erasure| &erasure.id;
    InventoryRecord in Inventory: str = |_inventory| "inventory";
    KeyRecord in Keys: str = |key| &key.key;
    ForgottenRecord in Forgotten: NodeId = |forgotten| &forgotten.node;
}

impl Stored for Meta {
    const TABLE: Table = Table::Meta;
    type Id = str;

    fn id(&self) -> &str {
        "meta"
    }

    fn encode(&self) -> Vec<u8> {
        to_json(self)
    }

    fn decode(value: &[u8]) -> Result<Self, String> {
        let meta: Self = from_json(value)?;
        meta.has_room()?;
        Ok(meta)
    }
}

/// The time, milliseconds since 1970, big-endian, then the image.
impl Stored for ImageRecord {
    const TABLE: Table = Table::Images;
    type Id = ImageId;

    fn id(&self) -> &ImageId {
        &self.label.id
    }

    fn encode(&self) -> Vec<u8> {
        [&self.since.as_millis().to_be_bytes()[..], &self.bytes].concat()
    }

    fn decode(value: &[u8]) -> Result<Self, String> {
        let (since, bytes) = value.split_first_chunk::<8>().ok_or("it is too short")?;
        let label = ImageLabel::of(bytes).map_err(|problem| problem.detail)?;
        let since = Timestamp::from_millis(u64::from_be_bytes(*since));
        Ok(Self { label, since, bytes: bytes.to_vec() })
    }
}

/// Reads a record, which has to be under its own key: so no two of a table are the same one's.
pub(super) fn read<T: Stored>((key, value): &Record) -> Result<T, String> {
    let record = T::decode(value)?;
    let own = record.id().key();
    if own != *key {
        return Err(format!("what stands there is of the key {}", readable(T::TABLE, &own)));
    }
    Ok(record)
}

/// A key as a person can look for it.
pub(super) fn readable(table: Table, key: &[u8]) -> String {
    match (table, key) {
        (Table::Forgotten, [high, low]) => u16::from_be_bytes([*high, *low]).to_string(),
        (Table::Images, _) => key.iter().map(|byte| format!("{byte:02x}")).collect(),
        _ => match number(table, key) {
            Some(number) => number.to_string(),
            // What is damaged is not to move a cursor.
            None => plain(&String::from_utf8_lossy(key)),
        },
    }
}

/// The number of a record in a table that goes by numbers.
pub(super) fn number(table: Table, key: &[u8]) -> Option<u64> {
    let is_numbered = matches!(
        table,
        Table::Allocations
            | Table::Bindings
            | Table::Operations
            | Table::Events
            | Table::Audit
            | Table::Erasures
    );
    Some(u64::from_be_bytes(key.try_into().ok().filter(|_| is_numbered)?))
}
