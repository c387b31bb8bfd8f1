//! What an endpoint counts.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A number for each thing that is counted since the device was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Counters {
            $($(#[$doc])* pub(super) $name: u64,)*
        }

        impl Counters {
            pub(super) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!("device.", stringify!($name)), self.$name),)*]
            }
        }
    };
}

counters! {
    /// TLPs that came.
    tlps_received,
    /// TLPs that were sent.
    tlps_sent,
    /// Bytes that cannot be a TLP, or a TLP that breaks a rule.
    malformed,
    /// TLPs that came without power or during reset.
    dropped_in_reset,
    /// Requests without room: the sender ignored flow control.
    receiver_overflow,
    /// Requests that the function does not serve.
    unsupported_requests,
    /// Configuration requests answered with retry status.
    config_retries,
    /// Completions that no request waits for.
    unexpected_completions,
    /// Completions of requests that timed out or were forgotten by a reset.
    stale_completions,
    /// Read requests whose completions did not come.
    completion_timeouts,
    /// Read requests that were completed with an error status.
    failed_completions,
    /// Poisoned TLPs.
    poisoned,
    /// Messages that mean nothing to an endpoint.
    ignored_messages,
    /// Interrupts raised while MSI-X and MSI were off, or of a vector that is not there.
    interrupts_lost,
    /// Interrupts sent.
    interrupts_sent,
    /// DMA writes dropped that waited for Bus Master Enable when what they were for was over.
    writes_dropped,
    /// Error messages that found no room.
    messages_dropped,
    /// Function-level resets.
    function_resets,
    /// Hot resets, PERST# and power.
    conventional_resets,
}
