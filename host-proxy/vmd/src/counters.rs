//! What the adapter counts.

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $field:ident = $text:literal,)*) => {
        /// What the adapter counted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $field: u64,)*
        }

        impl Counters {
            /// Each with its name.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$field),)*]
            }
        }
    };
}

counters! {
    /// Configuration requests made.
    configurations = "vm: configuration requests",
    /// Memory requests made.
    memory_requests = "vm: memory requests",
    /// Accesses, or parts of them, that nobody is there for.
    nobody = "vm: accesses to nobody",
    /// Requests that a device refused.
    refused = "vm: requests that a device refused",
    /// Requests without an answer in time.
    timed_out = "vm: requests timed out",
    /// Retries of configuration requests.
    retries = "vm: configuration requests tried again",
    /// Completions for nothing that is out.
    unexpected = "vm: unexpected completions",
    /// TLPs from below that are none.
    malformed = "vm: malformed TLPs from below",
    /// DMA reads.
    reads = "vm: DMA reads",
    /// DMA reads of memory that is reached by messages.
    reads_by_message = "vm: DMA reads by message",
    /// Bytes of DMA reads.
    bytes_read = "vm: bytes read by DMA",
    /// DMA writes.
    writes = "vm: DMA writes",
    /// DMA writes to memory that is reached by messages.
    writes_by_message = "vm: DMA writes by message",
    /// Bytes of DMA writes.
    bytes_written = "vm: bytes written by DMA",
    /// Posted writes of devices to nothing, or poisoned.
    writes_dropped = "vm: writes of devices dropped",
    /// Requests of devices that nothing here takes.
    unsupported = "vm: requests of devices refused",
    /// TLPs of devices for other devices.
    turned = "vm: TLPs turned to another device",
    /// Interrupts.
    interrupts = "vm: interrupts",
    /// Error and power management messages.
    messages = "vm: messages taken",
    /// Messages that mean nothing to this root complex.
    messages_ignored = "vm: messages ignored",
}
