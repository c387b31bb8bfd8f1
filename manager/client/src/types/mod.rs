//! What the manager keeps records of, as the API shows it and the store holds it.
//!
//! One file for each kind of thing: [`names`] and [`ids`] say how things are called, the others
//! what is known about them. Nothing here does anything: the rules for changing records are the
//! manager's.

pub mod amount;
pub mod audit;
pub mod binding;
pub mod device;
pub mod erasure;
pub mod event;
pub mod explanation;
pub mod firmware;
pub mod health;
pub mod hold;
pub mod ids;
pub mod link_use;
pub mod names;
pub mod node;
pub mod operation;
pub mod problem;
pub mod selector;
pub mod slot;
pub mod text;
pub mod topology;
pub mod wishes;

pub use amount::Amount;
pub use audit::AuditRecord;
pub use binding::{AllocationRecord, BindingRecord, Desired, FunctionEpoch, Lease, Phase};
pub use device::{DeviceRecord, DeviceState, FunctionAddress, PciIdentity, PciKind};
pub use erasure::{
    DEFAULT_ERASE_WITHIN_S, EraseMeans, EraseRule, ErasedFunction, ErasureRecord, ErasureState,
};
pub use event::{EventKind, EventRecord};
pub use explanation::{Candidate, ConstraintView, Explanation, PlannedSlot};
pub use firmware::{
    CardState, ImageId, ImageLabel, ImageRecord, MAX_IMAGE, MAX_IMAGES, RolloutCard, RolloutKind,
    RolloutRecord, RolloutState,
};
pub use health::{HealthDevice, HealthRecord, HealthState, ModelRecord, Subject};
pub use hold::{HoldKind, HoldRecord, Place};
pub use ids::{AllocationId, BindingId, ErasureId, OperationId, RecordingId, RolloutId};
pub use link_use::LinkUse;
pub use names::{NodeName, SlotAddress, Timestamp};
pub use node::{NodeRecord, Role};
pub use operation::{
    OperationKind, OperationRecord, OperationState, Step, StepName, StepState, TakeBackStage,
};
pub use problem::{NoSuchCode, Owner, Problem, ProblemCode};
pub use selector::Selector;
pub use slot::SlotStatus;
pub use topology::{Inventory, InventoryRecord, PlaceName};
pub use wishes::{Exclude, Together, Wishes};
