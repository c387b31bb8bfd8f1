//! A small NVMe driver library over an abstract PCIe function.
