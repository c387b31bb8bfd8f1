//! `--compare`: what is different in other predictions of the same trace.

use anyhow::{Context, Result};
use perf_core::{BytesPerSecond, Nanos, ReadSize, Tags, Thousandths};

use crate::replay::{Proxies, Scenario};
use crate::{profile, quantity};

/// Predictions beside the first, each with how it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Changes(Vec<(String, Vec<Change>)>);

/// One thing that is different.
#[derive(Clone, Copy, Debug)]
enum Change {
    Rtt(Nanos),
    Tags(Tags),
    ReadSize(ReadSize),
    ReadAhead(u64),
    Push(Option<BytesPerSecond>),
    FabricRate(BytesPerSecond),
    KernelRoundTrips(Thousandths),
    Proxies(Proxies),
}

/// Reads the option: `KEY=VALUE,VALUE,…` is a prediction for each value, `KEY=VALUE+KEY=VALUE` one
/// with several changes.
///
/// # Errors
/// What is wrong with it.
pub(super) fn changes(text: &str) -> Result<Changes, String> {
    if text.contains('+') {
        let changes = text.split('+').map(change).collect::<Result<_, _>>()?;
        return Ok(Changes(vec![(text.to_owned(), changes)]));
    }
    let (key, values) = text.split_once('=').ok_or_else(|| no_value(text))?;
    let one = |value: &str| {
        let said = format!("{key}={value}");
        let change = change(&said)?;
        Ok((said, vec![change]))
    };
    values.split(',').map(one).collect::<Result<_, String>>().map(Changes)
}

fn no_value(text: &str) -> String {
    format!("{text:?}: KEY=VALUE is wanted, as rtt=4.9us")
}

fn change(text: &str) -> Result<Change, String> {
    let (key, value) = text.split_once('=').ok_or_else(|| no_value(text))?;
    let number = || value.parse().map_err(|_| format!("{key}: {value:?} is no whole number"));
    match key {
        "rtt" => quantity::time(value).map(Change::Rtt),
        "tags" => Tags::new(number()?).map(Change::Tags).map_err(|error| error.to_string()),
        "mrs" | "read-size" => {
            ReadSize::new(number()?).map(Change::ReadSize).map_err(|error| error.to_string())
        }
        "read-ahead" => quantity::bytes(value).map(Change::ReadAhead),
        "push" if value == "off" => Ok(Change::Push(None)),
        "push" => quantity::rate(value).map(|rate| Change::Push(Some(rate))),
        "fabric-rate" => quantity::rate(value).map(Change::FabricRate),
        "kernel-round-trips" => {
            let number = value.parse().map_err(|_| format!("{key}: {value:?} is no number"))?;
            let trips = profile::round_trips(number).map_err(|error| error.to_string())?;
            Ok(Change::KernelRoundTrips(trips))
        }
        "proxies" if value == "one" => Ok(Change::Proxies(Proxies::One)),
        "proxies" if value == "each" => Ok(Change::Proxies(Proxies::Each)),
        "proxies" => Err(format!("proxies: {value:?} is neither one nor each")),
        _ => Err(format!(
            "{key:?} is none of rtt, tags, mrs, read-ahead, push, fabric-rate, \
             kernel-round-trips, proxies"
        )),
    }
}

impl Change {
    fn apply(self, scenario: &mut Scenario) -> Result<()> {
        let fabric = &mut scenario.settings.fabric;
        match self {
            Change::Rtt(rtt) => *fabric = fabric.with_rtt(rtt)?,
            Change::Tags(tags) => fabric.tags = tags,
            Change::ReadSize(size) => fabric.read_size = size,
            Change::ReadAhead(bytes) => fabric.read_ahead = bytes,
            Change::Push(rate) => fabric.push = rate,
            Change::FabricRate(rate) => fabric.fabric_rate = rate,
            Change::KernelRoundTrips(trips) => fabric.kernel_round_trips = trips,
            Change::Proxies(proxies) => scenario.settings.proxies = proxies,
        }
        Ok(())
    }
}

/// What is to be predicted beside `base`, and how that was asked for.
///
/// # Errors
/// A fabric that cannot be.
pub(super) fn compared(changes: &[Changes], base: &Scenario) -> Result<Vec<(String, Scenario)>> {
    let mut scenarios = Vec::new();
    for (said, changes) in changes.iter().flat_map(|changes| &changes.0) {
        let mut scenario = *base;
        for change in changes {
            change.apply(&mut scenario).with_context(|| format!("--compare {said}"))?;
        }
        scenarios.push((said.clone(), scenario));
    }
    Ok(scenarios)
}

#[cfg(test)]
mod unit_tests {
    use perf_core::{Fabric, Settings};

    use super::*;

    fn scenarios(texts: &[&str]) -> Result<Vec<(String, Scenario)>, String> {
        let base = Scenario::of(Settings::of(Fabric::DXPU_68), Proxies::default());
        let changes: Vec<_> = texts.iter().map(|it| changes(it)).collect::<Result<_, _>>()?;
        compared(&changes, &base).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn each_value_is_a_prediction_and_a_plus_is_one() {
        let all = scenarios(&["rtt=2us,4.9us", "tags=280+mrs=512+push=9.44GB/s", "proxies=each"]);
        let all = all.unwrap();
        let said: Vec<&str> = all.iter().map(|(said, _)| said.as_str()).collect();
        assert_eq!(
            said,
            ["rtt=2us", "rtt=4.9us", "tags=280+mrs=512+push=9.44GB/s", "proxies=each"]
        );
        let fabric = |at: usize| all[at].1.settings.fabric;
        assert_eq!(fabric(1), Fabric::DXPU_49);
        let several = Fabric {
            tags: Tags::new(280).unwrap(),
            read_size: ReadSize::new(512).unwrap(),
            push: Some(Fabric::DXPU_PUSH),
            ..Fabric::DXPU_68
        };
        assert_eq!((fabric(2), fabric(3)), (several, Fabric::DXPU_68));
        assert_eq!(all[3].1.settings.proxies, Proxies::Each);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, says) in [
            ("rtt", "KEY=VALUE is wanted"),
            ("rtt=5", "has no unit"),
            ("rtt=1us", "--compare rtt=1us: the round trip 1.00 us is shorter"),
            ("tags=0", "0 tags"),
            ("tags=x", "no whole number"),
            ("mrs=100", "read size 100"),
            ("push=fast", "does not begin with a number"),
            ("proxies=2", "neither one nor each"),
            ("speed=2", "\"speed\" is none of"),
            ("kernel-round-trips=-1", "not from 0"),
        ] {
            let error = scenarios(&[text]).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
