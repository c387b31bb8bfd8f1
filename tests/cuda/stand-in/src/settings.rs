//! What the stand-in is told: how many devices there are, and how long everything takes.

use std::sync::OnceLock;

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// Settings, from the environment's `STAND_IN`: `name=number`, separated by commas. Times
        /// are in nanoseconds, rates in bytes a microsecond (megabytes a second).
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Settings {
            /// Reads them.
            ///
            /// # Errors
            ///
            /// What cannot be understood.
            fn read(text: &str) -> Result<Self, String> {
                let mut settings = Self { $($name: $value,)* };
                for one in text.split(',').filter(|one| !one.is_empty()) {
                    let (name, value) = one.split_once('=').unwrap_or((one, ""));
                    let value = value.parse().map_err(|_| format!("`{one}` has no number"))?;
                    match name {
                        $(stringify!($name) => settings.$name = value,)*
                        _ => return Err(format!("there is no setting `{name}`")),
                    }
                }
                Ok(settings)
            }
        }
    };
}

settings! {
    /// The CUDA version of the driver, times 1000, and its minor version times 10.
    version = 13050,
    /// Devices.
    devices = 1,
    /// Memory of each device, in bytes.
    memory = 85_899_345_920,
    /// A call that asks nothing of a device.
    call_ns = 200,
    /// A call that only asks what something is.
    get_ns = 100,
    /// A call that asks how far a stream or an event is.
    query_ns = 200,
    /// A launch of the shim's kernel that spends a delay.
    delay_ns = 2_000,
    /// A call that launches a kernel or a graph, copies or sets memory.
    launch_ns = 2_000,
    /// A call that waits, beside the waiting.
    sync_ns = 500,
    /// From a launch's call until the device begins, when it has nothing else to do.
    reach_ns = 1_000,
    /// A kernel whose name does not say how long it lasts.
    kernel_ns = 5_000,
    /// Kernels that run at the same time on a device.
    concurrent = 128,
    /// A copy or a memset of no bytes.
    copy_ns = 1_000,
    /// Host to device, of one copy engine.
    htod_rate = 11_200,
    /// Device to host, of another.
    dtoh_rate = 12_500,
    /// Device to device on one device, and memsets.
    dtod_rate = 700_000,
    /// Device to another device.
    peer_rate = 11_200,
    /// A read of the host's memory by a kernel: its round trip.
    read_ns = 1_200,
    /// A host callback, beside what it does itself.
    callback_ns = 3_000,
}

/// The settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = std::env::var("STAND_IN").unwrap_or_default();
        Settings::read(&text).unwrap_or_else(|wrong| {
            // A test that is set up wrongly is to end here: what follows would mean nothing.
            eprintln!("stand-in CUDA driver: STAND_IN: {wrong}");
            std::process::exit(2)
        })
    })
}

impl Settings {
    /// How long moving `bytes` takes at a rate.
    pub(crate) fn moving(&self, bytes: u64, rate: u64) -> u64 {
        self.copy_ns + (u128::from(bytes) * 1000 / u128::from(rate.max(1))) as u64
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused() {
        let settings = Settings::read("devices=2,,call_ns=7").unwrap();
        assert_eq!((settings.devices, settings.call_ns, settings.sync_ns), (2, 7, 500));
        for wrong in ["devices", "devices=", "devices=-1", "device=1", "=1"] {
            assert!(Settings::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moving_takes_its_beginning_and_its_bytes() {
        let settings = Settings::read("copy_ns=100,htod_rate=1000").unwrap();
        assert_eq!(settings.moving(5000, settings.htod_rate), 5100);
        assert_eq!(settings.moving(0, 0), 100);
        assert_eq!(settings.moving(1 << 40, 1_000_000), 100 + (1 << 40) / 1000);
    }
}
