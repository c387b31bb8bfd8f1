//! The model host with devices and the virtual switch in one process, no thread and no network.

mod direct;
mod dma;
mod fabric;
mod faults;
mod hostile;
mod hotplug;
mod nvme;
mod switched;
