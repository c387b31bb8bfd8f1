//! What the root complex counts.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A number for everything that came, went, or was refused.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Every counter with its name. Names do not change.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Configuration requests sent.
    config_requests,
    /// Configuration requests sent again because of retry status.
    config_retries,
    /// Memory reads sent.
    reads,
    /// Memory writes sent.
    writes,
    /// I/O requests sent.
    io_requests,
    /// Completions that belonged to a request.
    completions,
    /// Requests without a completion in time.
    timeouts,
    /// Completions of requests that had timed out.
    late_completions,
    /// Completions of no request.
    unexpected_completions,
    /// TLPs that broke a rule and were dropped.
    malformed,
    /// Memory reads of devices, answered with data.
    device_reads,
    /// Memory writes of devices to host memory.
    device_writes,
    /// Atomic operations of devices on host memory.
    device_atomics,
    /// Bytes that devices read.
    device_bytes_read,
    /// Bytes that devices wrote.
    device_bytes_written,
    /// Memory writes of devices that were interrupts.
    interrupts,
    /// Non-posted requests of devices completed with Unsupported Request.
    unsupported_requests,
    /// Posted requests of devices that were dropped: no such memory, poisoned, not supported.
    posted_dropped,
    /// Messages that came.
    messages,
    /// Messages that were dropped because nobody took them.
    messages_lost,
}
