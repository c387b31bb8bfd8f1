//! Profiles: a GPU, a host and a fabric between them, built in or in a file.

use std::path::Path;

use anyhow::{Context, Result, bail};
use perf_core::{BytesPerSecond, Fabric, Nanos, ReadSize, Tags, Thousandths};
use serde::{Deserialize, Serialize};

use crate::quantity;

/// Where a round trip's time goes (DxPU, Table 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The round trip of a GPU in the host.
    pub original: Nanos,
    /// On the wire and in its switches.
    pub network: Nanos,
    /// Turning TLPs into frames and back, both proxies together.
    pub conversion: Nanos,
}

/// A named fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name, or its file's.
    pub name: String,
    /// What it costs.
    pub fabric: Fabric,
    /// Where its round trip goes, where that is known.
    pub split: Option<Split>,
    /// What the GPU is called, where that is known.
    pub gpu: Option<String>,
    /// The smallest delay that can be injected, where it was measured (`dxpu-perf calibrate`).
    pub smallest_delay: Option<Nanos>,
    /// What a delay costs beyond what was asked for, where it was measured apart from that.
    pub delay_cost: Option<Nanos>,
    /// What lies between two events around a kernel that does nothing, where it was measured.
    pub event_cost: Option<Nanos>,
}

/// The names of the profiles that are built in.
pub const BUILT_IN: [&str; 2] = ["dxpu-68", "dxpu-49"];

impl Profile {
    /// The profile of this name, or the one in the file of this name.
    ///
    /// # Errors
    /// No such profile; what is wrong in the file, and where.
    pub fn load(name: &str) -> Result<Self> {
        match name {
            "dxpu-68" => Ok(Self {
                name: name.to_owned(),
                fabric: Fabric::DXPU_68,
                split: Some(Split {
                    original: Nanos(1_200),
                    network: Nanos(1_900),
                    conversion: Nanos(3_700),
                }),
                gpu: Some("V100".to_owned()),
                smallest_delay: None,
                delay_cost: None,
                event_cost: None,
            }),
            "dxpu-49" => Ok(Self {
                name: name.to_owned(),
                fabric: Fabric::DXPU_49,
                split: None,
                gpu: Some("V100".to_owned()),
                smallest_delay: None,
                delay_cost: None,
                event_cost: None,
            }),
            file => Self::read(Path::new(file)),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "profile {}: it is neither built in ({}) nor a file that can be read",
                path.display(),
                BUILT_IN.join(", ")
            )
        })?;
        let file: File =
            toml::from_str(&text).with_context(|| format!("profile {}", path.display()))?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        file.profile(name).with_context(|| format!("profile {}", path.display()))
    }

    /// The shortest round trip that can be injected: the native one and the smallest delay.
    pub fn least_rtt(&self) -> Nanos {
        self.fabric.native_rtt.saturating_add(self.smallest_delay.unwrap_or(Nanos::ZERO))
    }

    /// What a delay costs beyond what is asked for, to be taken off that. Profiles that do not say it
    /// have it as their smallest delay.
    pub fn delay_cost(&self) -> Nanos {
        self.delay_cost.or(self.smallest_delay).unwrap_or(Nanos::ZERO)
    }

    /// The text of a file that [`Profile::load`] reads as this profile.
    pub fn to_toml(&self) -> String {
        let file = File::of(self);
        toml::to_string(&file).expect("texts and numbers are TOML")
    }
}

/// A profile's file. Everything but the round trip has a default: DxPU's V100.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<String>,
    smallest_delay: Option<String>,
    delay_cost: Option<String>,
    event_cost: Option<String>,
    rtt: Option<String>,
    native_rtt: Option<String>,
    network: Option<String>,
    conversion: Option<String>,
    tags: Option<u32>,
    read_size: Option<u32>,
    read_ahead: Option<String>,
    native_htod: Option<String>,
    native_dtoh: Option<String>,
    fabric_rate: Option<String>,
    kernel_round_trips: Option<f64>,
    push: Option<String>,
}

impl File {
    fn profile(self, name: String) -> Result<Profile> {
        let base = Fabric::DXPU_68;
        let native_rtt = field("native_rtt", self.native_rtt.as_deref(), quantity::time)?
            .unwrap_or(base.native_rtt);
        let network = field("network", self.network.as_deref(), quantity::time)?;
        let conversion = field("conversion", self.conversion.as_deref(), quantity::time)?;
        let split = match (network, conversion) {
            (Some(network), Some(conversion)) => {
                Some(Split { original: native_rtt, network, conversion })
            }
            (None, None) => None,
            _ => bail!("network and conversion belong together: give both or none"),
        };
        let rtt = field("rtt", self.rtt.as_deref(), quantity::time)?;
        let rtt = match (rtt, split) {
            (Some(rtt), None) => rtt,
            (rtt, Some(split)) => agreed(rtt, split)?,
            (None, None) => bail!("rtt is missing: the round trip through the fabric, as 6.8us"),
        };
        let rate = |name, text: Option<&str>, otherwise| {
            Ok::<BytesPerSecond, anyhow::Error>(
                field(name, text, quantity::rate)?.unwrap_or(otherwise),
            )
        };
        let fabric = Fabric {
            native_rtt,
            rtt,
            tags: self.tags.map_or(Ok(base.tags), Tags::new).context("tags")?,
            read_size: self
                .read_size
                .map_or(Ok(base.read_size), ReadSize::new)
                .context("read_size")?,
            read_ahead: field("read_ahead", self.read_ahead.as_deref(), quantity::bytes)?
                .unwrap_or(0),
            native_htod: rate("native_htod", self.native_htod.as_deref(), base.native_htod)?,
            native_dtoh: rate("native_dtoh", self.native_dtoh.as_deref(), base.native_dtoh)?,
            fabric_rate: rate("fabric_rate", self.fabric_rate.as_deref(), base.fabric_rate)?,
            kernel_round_trips: self
                .kernel_round_trips
                .map_or(Ok(base.kernel_round_trips), round_trips)?,
            push: field("push", self.push.as_deref(), quantity::rate)?,
        };
        let smallest_delay =
            field("smallest_delay", self.smallest_delay.as_deref(), quantity::time)?;
        let delay_cost = field("delay_cost", self.delay_cost.as_deref(), quantity::time)?;
        let event_cost = field("event_cost", self.event_cost.as_deref(), quantity::time)?;
        let fabric = fabric.with_rtt(rtt)?;
        let gpu = self.gpu;
        Ok(Profile { name, fabric, split, gpu, smallest_delay, delay_cost, event_cost })
    }

    fn of(profile: &Profile) -> Self {
        let fabric = &profile.fabric;
        let time = |time: Nanos| Some(format!("{}ns", time.0));
        let rate = |rate: BytesPerSecond| Some(format!("{}B/s", rate.get()));
        Self {
            gpu: profile.gpu.clone(),
            smallest_delay: profile.smallest_delay.and_then(time),
            delay_cost: profile.delay_cost.and_then(time),
            event_cost: profile.event_cost.and_then(time),
            rtt: time(fabric.rtt),
            native_rtt: time(fabric.native_rtt),
            network: profile.split.and_then(|split| time(split.network)),
            conversion: profile.split.and_then(|split| time(split.conversion)),
            tags: Some(fabric.tags.get()),
            read_size: Some(fabric.read_size.get()),
            read_ahead: Some(fabric.read_ahead.to_string()),
            native_htod: rate(fabric.native_htod),
            native_dtoh: rate(fabric.native_dtoh),
            fabric_rate: rate(fabric.fabric_rate),
            kernel_round_trips: Some(f64::from(fabric.kernel_round_trips.0) / 1e3),
            push: fabric.push.and_then(rate),
        }
    }
}

fn field<T>(
    name: &str,
    text: Option<&str>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>> {
    text.map(read).transpose().map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

/// The round trip that the split adds up to, which `rtt` must agree with where it is there.
fn agreed(rtt: Option<Nanos>, split: Split) -> Result<Nanos> {
    let sum = split.original.saturating_add(split.network).saturating_add(split.conversion);
    match rtt {
        Some(rtt) if rtt != sum => bail!(
            "rtt is {rtt}, but native_rtt, network and conversion are {sum} together: \
             leave rtt out, or mend one"
        ),
        _ => Ok(sum),
    }
}

/// Round trips as a number of thousandths.
///
/// # Errors
/// It is negative, not a number, or more than 1,000.
pub fn round_trips(value: f64) -> Result<Thousandths> {
    if !(0.0..=1000.0).contains(&value) {
        bail!("kernel_round_trips: {value} is not from 0 to 1000");
    }
    Ok(Thousandths((value * 1e3).round() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, text).unwrap();
        Profile::load(path.to_str().unwrap())
    }

    #[test]
    fn the_built_in_splits_add_up() {
        for name in BUILT_IN {
            let profile = Profile::load(name).unwrap();
            if let Some(split) = profile.split {
                assert_eq!(agreed(None, split).unwrap(), profile.fabric.rtt);
            }
        }
    }

    #[test]
    fn a_profile_comes_back_from_its_file() {
        for name in BUILT_IN {
            let profile = Profile::load(name).unwrap();
            let back = read(&profile.to_toml()).unwrap();
            assert_eq!(back, Profile { name: "mine".to_owned(), ..profile });
        }
        let push = Fabric { push: Some(Fabric::DXPU_PUSH), ..Fabric::DXPU_49 };
        let known = Profile::load("dxpu-49").unwrap();
        let costs = (Some(Nanos(2_500)), Some(Nanos(1_800)), Some(Nanos(2_900)));
        let (smallest_delay, delay_cost, event_cost) = costs;
        let profile = Profile { fabric: push, smallest_delay, delay_cost, event_cost, ..known };
        let back = read(&profile.to_toml()).unwrap();
        assert_eq!(back, Profile { name: "mine".to_owned(), ..profile });
    }

    #[test]
    fn what_a_delay_costs_is_its_own_or_the_smallest_one() {
        let of = |text: &str| {
            let profile = read(&format!("rtt = \"6.8us\"\n{text}")).unwrap();
            (profile.least_rtt(), profile.delay_cost())
        };
        assert_eq!(of(""), (Nanos(1_200), Nanos::ZERO));
        assert_eq!(of("smallest_delay = \"2us\""), (Nanos(3_200), Nanos(2_000)));
        let both = "smallest_delay = \"2.5us\"\ndelay_cost = \"1.8us\"";
        assert_eq!(of(both), (Nanos(3_700), Nanos(1_800)));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said() {
        for (text, says) in [
            ("", "rtt is missing"),
            ("rtt = \"7\"", "rtt: \"7\" has no unit"),
            ("rtt = \"1us\"", "shorter than the native one"),
            ("rtt = \"7us\"\ntags = 0", "tags: 0 tags"),
            ("rtt = \"7us\"\nread_size = 100", "read_size"),
            ("rtt = \"7us\"\nnetwork = \"1us\"", "belong together"),
            ("rtt = \"7us\"\nnetwork = \"1us\"\nconversion = \"1us\"", "3.20 us together"),
            ("rtt = \"7us\"\nkernel_round_trips = -1.0", "kernel_round_trips"),
            ("rtt = \"7us\"\ncolour = \"red\"", "colour"),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(says) && error.contains("mine.toml"), "{text}: {error}");
        }
        let error = format!("{:#}", Profile::load("no-such").unwrap_err());
        assert!(error.contains("dxpu-68, dxpu-49"), "{error}");
    }
}
