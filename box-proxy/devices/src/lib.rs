//! Models of real PCIe devices: an NVMe controller over an image file, an accelerator for measurements.
