//! What `box-proxy` is told.

use clap::Parser;
use proxy_core::limits::MAX_SLOTS;
use proxy_daemon::config::{Common, PROXY_TABLE, Said, read_file, relative_to};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const SLOTS: &str = "\
A slot is given as NUMBER=DEVICE[,KEY=VALUE]..., or in the file as a [slot.NUMBER] table:
  nvme         an NVMe 1.4 controller over an image file
               image=FILE (needed)  size=SIZE (made so large if FILE is not there)  lba=512|4096
  accelerator  a DMA engine for measurements
               tags=1..768 [140]  read=64..4096 [128]  memory=SIZE [2M]
  both         model=NAME (what `allocate --model` finds it by)  serial=NUMBER

Example:
  box-proxy --name box-a --slot 1=nvme,image=disk.img,size=64M,model=nvme-64m --slot 2=accelerator
";

const SLOT_TABLES: &str = r#"# A table for each slot, 1 to 16; of a slot, only the device must be given, and an nvme's image.
[slot.1]
device = "nvme"
# Found beside this file if it is not a whole path.
image = "disk.img"
# How large the image is made if it is not there: bytes, or with K, M, G or T.
size = "64M"
# Bytes of a logical block: 512 or 4096.
lba = 512
# What `allocate --model` finds it by; the device's name if not given.
model = "nvme-64m"
# Made of the box's name and the slot if not given.
serial = 1

[slot.2]
device = "accelerator"
# Tags of its DMA engine, 1 to 768.
tags = 140
# Its largest read request in bytes: a power of two, 64 to 4096.
read = 128
# Its memory: a power of two, 1M to 4G.
memory = "2M"
"#;

const EXIT: &str = "Exit status: 0 stopped by a signal, 1 failed while running, 2 wrong settings.";

/// Lends the PCIe devices in this box to hosts across Ethernet.
///
/// Settings come from the file named with --config (TOML), the environment, and flags; a flag
/// outweighs the environment, which outweighs the file.
#[derive(Debug, Parser)]
#[command(
    name = "box-proxy",
    version,
    after_help = format!("{SLOTS}\n{EXIT}"),
    after_long_help = format!(
        "{SLOTS}\n\
         Configuration file, complete:\n{PROXY_TABLE}\n{SLOT_TABLES}\n{EXIT}"
    )
)]
pub struct Cli {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "DXPU_BOX_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    common: Said,
    /// What is in a slot; repeat for each slot
    #[arg(long = "slot", value_name = "SPEC")]
    slots: Vec<NumberedSlot>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    proxy: Said,
    #[serde(default)]
    slot: BTreeMap<String, SlotSpec>,
}

/// A slot's number and content, as one flag says it.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedSlot(pub u8, pub SlotSpec);

/// What is in a slot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotSpec {
    /// Which device.
    pub device: DeviceKind,
    /// What `allocate --model` finds it by; the device's kind if nothing is said.
    pub model: Option<String>,
    /// Device serial number.
    pub serial: Option<u64>,
    /// Image file of an NVMe drive.
    pub image: Option<PathBuf>,
    /// Size of the image if it is to be made.
    pub size: Option<Size>,
    /// Bytes of a logical block: 512 or 4096.
    pub lba: Option<u32>,
    /// Tags of an accelerator's DMA engine.
    pub tags: Option<u16>,
    /// Largest read request of an accelerator, in bytes.
    pub read: Option<u16>,
    /// Device memory of an accelerator.
    pub memory: Option<Size>,
}

/// The devices there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// An NVMe controller.
    Nvme,
    /// The accelerator model.
    Accelerator,
}

/// A number of bytes, with or without K, M, G or T (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml_value::SizeText")]
pub struct Size(pub u64);

mod toml_value {
    use super::Size;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(untagged)]
    pub(super) enum SizeText {
        Number(u64),
        Text(String),
    }

    impl TryFrom<SizeText> for Size {
        type Error = String;

        fn try_from(text: SizeText) -> Result<Self, String> {
            match text {
                SizeText::Number(bytes) => Ok(Size(bytes)),
                SizeText::Text(text) => text.parse(),
            }
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].trim_end_matches("iB").trim_end_matches('B') {
            "" => 0,
            "K" | "k" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(format!("size {text:?}: the unit is K, M, G or T")),
        };
        let number: u64 =
            digits.parse().map_err(|_| format!("size {text:?}: a number such as 64M"))?;
        match number.checked_mul(1 << shift) {
            Some(bytes) if bytes > 0 => Ok(Size(bytes)),
            _ => Err(format!("size {text:?}: out of range")),
        }
    }
}

impl FromStr for NumberedSlot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("slot {text:?}: {why}");
        let (number, rest) =
            text.split_once('=').ok_or_else(|| wrong("NUMBER=DEVICE[,KEY=VALUE]...".into()))?;
        let number = slot_number(number).map_err(wrong)?;
        let mut parts = rest.split(',');
        let device = match parts.next() {
            Some("nvme") => DeviceKind::Nvme,
            Some("accelerator") => DeviceKind::Accelerator,
            other => {
                let other = other.unwrap_or("");
                return Err(wrong(format!("there is no device {other:?}: nvme or accelerator")));
            }
        };
        let (mut spec, mut given) = (SlotSpec::new(device), Vec::new());
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| wrong(format!("{part:?} has no value: KEY=VALUE")))?;
            if given.contains(&key) {
                return Err(wrong(format!("{key} is given twice")));
            }
            given.push(key);
            spec.set(key, value).map_err(wrong)?;
        }
        Ok(Self(number, spec))
    }
}

fn slot_number(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(number) if (1..=MAX_SLOTS).contains(&(number as usize)) => Ok(number),
        _ => Err(format!("slots are numbered 1 to {MAX_SLOTS}")),
    }
}

impl SlotSpec {
    pub(crate) fn new(device: DeviceKind) -> Self {
        let (model, serial, image, size, lba, tags, read, memory) = Default::default();
        Self { device, model, serial, image, size, lba, tags, read, memory }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        fn number<T: FromStr>(key: &str, value: &str) -> Result<Option<T>, String> {
            value.parse().map(Some).map_err(|_| format!("{key}={value}: a number"))
        }
        match key {
            "model" => self.model = Some(value.into()),
            "serial" => self.serial = number(key, value)?,
            "image" => self.image = Some(value.into()),
            "size" => self.size = Some(value.parse()?),
            "lba" => self.lba = number(key, value)?,
            "tags" => self.tags = number(key, value)?,
            "read" => self.read = number(key, value)?,
            "memory" => self.memory = Some(value.parse()?),
            _ => return Err(format!("there is no key {key:?}; see --help")),
        }
        Ok(())
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        let kind = match self.device {
            DeviceKind::Nvme => "nvme",
            DeviceKind::Accelerator => "accelerator",
        };
        self.model.as_deref().unwrap_or(kind)
    }

    /// Bytes of a drive's logical block.
    fn block(&self) -> u64 {
        self.lba.unwrap_or(512).into()
    }

    /// Whether a drive's image, which `what` names, can have so many bytes: whole logical blocks.
    pub(crate) fn check_size(&self, what: impl Display, size: u64) -> Result<(), String> {
        let block = self.block();
        match size {
            size if size < block => Err(format!("{what}: at least {block}, a logical block")),
            size if size % block != 0 => Err(format!(
                "{what}: a multiple of the {block} bytes of a logical block, such as {}",
                size - size % block
            )),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        let given = |what: bool, key: &str, device: &str| {
            if what { Err(format!("{key} is for {device}")) } else { Ok(()) }
        };
        if self.model().len() > proxy_core::control::MAX_NAME {
            return Err(format!("model has at most {} bytes", proxy_core::control::MAX_NAME));
        }
        match self.device {
            DeviceKind::Nvme => {
                given(self.tags.is_some(), "tags", "accelerators")?;
                given(self.read.is_some(), "read", "accelerators")?;
                given(self.memory.is_some(), "memory", "accelerators")?;
                if self.image.is_none() {
                    return Err("an nvme needs image=FILE".into());
                }
                if !matches!(self.block(), 512 | 4096) {
                    return Err(format!("lba={}: 512 or 4096", self.block()));
                }
                match self.size {
                    Some(Size(size)) => self.check_size(format_args!("size={size}"), size),
                    None => Ok(()),
                }
            }
            DeviceKind::Accelerator => {
                given(self.image.is_some(), "image", "nvme drives")?;
                given(self.size.is_some(), "size", "nvme drives")?;
                given(self.lba.is_some(), "lba", "nvme drives")?;
                if !(1..=768).contains(&self.tags.unwrap_or(140)) {
                    return Err("tags: 1 to 768".into());
                }
                let read = self.read.unwrap_or(128);
                if !(64..=4096).contains(&read) || !read.is_power_of_two() {
                    return Err("read: a power of two from 64 to 4096".into());
                }
                let memory = self.memory.map_or(2 << 20, |m| m.0);
                if !memory.is_power_of_two() || !(1 << 20..=1 << 32).contains(&memory) {
                    return Err("memory: a power of two from 1M to 4G".into());
                }
                Ok(())
            }
        }
    }
}

/// Everything checked.
#[derive(Debug)]
pub struct Config {
    /// What both daemons have.
    pub common: Common,
    /// Slots with something in them.
    pub slots: BTreeMap<u8, SlotSpec>,
}

impl Cli {
    /// Reads the file and puts all together.
    ///
    /// # Errors
    ///
    /// A text that names the setting, what is wrong with it and what is allowed.
    pub fn check(self) -> Result<Config, String> {
        let file: File = read_file(self.config.as_deref())?;
        let mut slots = BTreeMap::new();
        for (number, spec) in file.slot {
            let number = slot_number(&number).map_err(|e| format!("slot.{number}: {e}"))?;
            slots.insert(number, Self::resolve(spec, self.config.as_deref()));
        }
        let mut said = BTreeSet::new();
        for NumberedSlot(number, spec) in self.slots {
            if !said.insert(number) {
                return Err(format!(
                    "slot {number}: given twice with --slot; a slot has one device"
                ));
            }
            slots.insert(number, spec);
        }
        for (number, spec) in &slots {
            spec.check().map_err(|e| format!("slot {number}: {e}"))?;
        }
        if slots.is_empty() {
            return Err("a box without slots has nothing to lend; give --slot or --config".into());
        }
        Ok(Config { common: self.common.or(file.proxy).check()?, slots })
    }

    /// Image files are named relative to the configuration file that names them.
    fn resolve(mut spec: SlotSpec, config: Option<&Path>) -> SlotSpec {
        spec.image = spec.image.map(|image| relative_to(config, &image));
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_daemon::config::file_in_help;

    fn parse(args: &[&str]) -> Result<Config, String> {
        Cli::try_parse_from([&["box-proxy"], args].concat()).map_err(|e| e.to_string())?.check()
    }

    #[test]
    fn a_slot_is_read_from_a_flag() {
        let config =
            parse(&["--slot", "3=nvme,image=a.img,size=64M,model=x", "--slot", "1=accelerator"]);
        let config = config.unwrap();
        assert_eq!(config.slots[&3].size, Some(Size(64 << 20)));
        assert_eq!(config.slots[&3].model(), "x");
        assert_eq!(config.slots[&1].model(), "accelerator");
    }

    #[test]
    fn a_slot_is_read_from_the_file_and_its_image_is_found_beside_it() {
        let folder = std::env::temp_dir().join(format!("box-proxy-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("box.toml");
        let text =
            "[proxy]\nname = \"b\"\n[slot.2]\ndevice = \"nvme\"\nimage = \"d.img\"\nsize = \"1G\"";
        std::fs::write(&file, text).unwrap();
        let config = parse(&["--config", file.to_str().unwrap(), "--mtu", "1500"]).unwrap();
        assert_eq!(config.slots[&2].image.as_deref(), Some(folder.join("d.img").as_path()));
        assert_eq!((config.common.name.as_str(), config.common.mtu), ("b", Some(1500)));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (slot, named) in [
            ("0=nvme,image=a", "1 to 16"),
            ("1", "NUMBER=DEVICE"),
            ("1=gpu", "\"gpu\""),
            ("1=nvme", "image=FILE"),
            ("1=nvme,image=a,lba=100", "512 or 4096"),
            ("1=nvme,image=a,size=1000", "512 bytes of a logical block, such as 512"),
            ("1=nvme,image=a,size=100", "at least 512"),
            ("1=nvme,image=a,size=6K,lba=4096", "such as 4096"),
            ("1=nvme,image=a,tags=3", "accelerators"),
            ("1=nvme,image=a,size=1G,size=1G", "size is given twice"),
            ("1=nvme,image=a,size=4X", "K, M, G or T"),
            ("1=accelerator,read=100", "power of two"),
            ("1=accelerator,tags=0", "1 to 768"),
            ("1=accelerator,color=red", "color"),
        ] {
            let error = parse(&["--slot", slot]).unwrap_err();
            assert!(error.contains(named), "{slot}: {error}");
        }
        let twice = ["--slot", "1=accelerator", "--slot", "1=nvme,image=a"];
        assert!(parse(&twice).unwrap_err().contains("slot 1: given twice"));
        assert!(parse(&["--name", "a b", "--slot", "1=accelerator"]).unwrap_err().contains("a b"));
        assert!(parse(&[]).unwrap_err().contains("--slot"));
        assert!(parse(&["--config", "/nowhere"]).unwrap_err().contains("/nowhere"));
    }

    #[test]
    fn the_file_that_help_shows_is_complete_and_can_be_read() {
        let help = <Cli as clap::CommandFactory>::command().render_long_help().to_string();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.toml");
        std::fs::write(&path, file_in_help(&help)).unwrap();
        let file: File = read_file(Some(&path)).unwrap();
        assert!(file.proxy.is_complete(), "{:?}", file.proxy);
        let [nvme, accelerator] = [&file.slot["1"], &file.slot["2"]];
        assert_eq!((nvme.device, accelerator.device), (DeviceKind::Nvme, DeviceKind::Accelerator));
        assert!(nvme.image.is_some() && nvme.size.is_some() && nvme.lba.is_some());
        assert!(nvme.model.is_some() && nvme.serial.is_some());
        assert!(accelerator.tags.is_some() && accelerator.read.is_some());
        assert!(accelerator.memory.is_some());
        let config = parse(&["--config", path.to_str().unwrap()]).unwrap();
        assert_eq!(config.slots.len(), 2);

        std::fs::write(&path, "name = \"b\"").unwrap();
        let error = parse(&["--config", path.to_str().unwrap()]).unwrap_err();
        assert!(error.contains("name") && error.contains("--help"), "{error}");
    }
}
