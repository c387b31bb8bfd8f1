//! What the API shows of the records. Lists come as `{"items": […]}`, so that something can be
//! added beside them.

mod erasures;
mod events;
mod firmware;
mod latency;
mod lending;
mod pool;
mod proxies;
mod recordings;
mod spares;
mod tables;

pub use erasures::ErasureView;
pub use events::EventPage;
pub use firmware::{CardView, FirmwareSlotView, ImageView, RolloutView, SlotStateName};
pub use latency::{DeviceLatency, Latency, SlowRequest, Split, StageTime};
pub use lending::{AllocationView, BindingView, BoundFunction, LeaseView};
pub use pool::{
    BoxView, Connection, DeviceView, FactsView, FunctionView, Health, HostView, InventoryView,
    List, NodeView, RootComplexView, SlotView, StoreTrouble,
};
pub use proxies::{Counters, StampView, StampedKind, Stamps};
pub use recordings::{EndReason, Ended, Format, NotRecorded, RecordingView};
pub use spares::{RateSource, SparesView};
pub use tables::{
    AllTables, BoxTable, HostTable, MappingView, Range, SilentProxy, SlotTableEntry, TableFunction,
    WindowView,
};
