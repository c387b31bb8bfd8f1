//! The round trip split as in DxPU's Table 6: what the device itself takes (original), what the
//! network takes, and what the two proxies take (conversion).
//!
//! Each proxy stamped its own stages by its own clock; only differences of one clock are used.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Indexes into a stamp's times: the stages of `proxy_core::stamps::Stage`.
mod stage {
    pub(super) const ARRIVED: usize = 0;
    pub(super) const SENT: usize = 2;
    pub(super) const RECEIVED: usize = 3;
    pub(super) const DELIVERED: usize = 5;
}

/// What names one round trip between two nodes: the binding's slot, function and epoch, index and
/// generation.
type Key = (u64, u64, String, u64, u64);

/// The stamps of one proxy, as the manager passes them on.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stamps {
    node: u64,
    stamps: Vec<Stamp>,
}

/// One stamp of one proxy, as the manager passes it on.
#[derive(Clone, Debug, Deserialize)]
struct Stamp {
    peer: u64,
    slot: u64,
    function: u64,
    epoch: String,
    from_host: bool,
    kind: Kind,
    index: Option<u64>,
    generation: Option<u64>,
    at: [Option<u64>; 6],
}

/// What a stamped TLP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Request,
    Completion,
    Posted,
}

impl Stamp {
    fn key(&self) -> Option<Key> {
        Some((self.slot, self.function, self.epoch.clone(), self.index?, self.generation?))
    }
}

/// The medians of the parts, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Split {
    /// Round trips that all four stamps were found of.
    pub(crate) samples: usize,
    /// From the host proxy's taking the request to its delivering the completion.
    pub(crate) total_ns: u64,
    /// Inside the device, from taking the request to giving the completion.
    pub(crate) original_ns: u64,
    /// Between the two proxies, both ways.
    pub(crate) network_ns: u64,
    /// Inside the host proxy, both ways.
    pub(crate) host_conversion_ns: u64,
    /// Inside the box proxy, both ways.
    pub(crate) box_conversion_ns: u64,
}

/// Joins the stamps of the two proxies for requests of the host.
pub(crate) fn split(host: &Stamps, at_box: &Stamps) -> Split {
    // Two boxes may have bindings of the same name, and so may two hosts.
    let index = |of: &Stamps, with: &Stamps, kind: Kind| -> HashMap<Key, [Option<u64>; 6]> {
        let wanted = |s: &&Stamp| s.from_host && s.kind == kind && s.peer == with.node;
        let wanted = of.stamps.iter().filter(wanted);
        wanted.filter_map(|s| Some((s.key()?, s.at))).collect()
    };
    let ask = index(host, at_box, Kind::Request);
    let answer = index(host, at_box, Kind::Completion);
    let asked = index(at_box, host, Kind::Request);
    let answered = index(at_box, host, Kind::Completion);
    let mut parts: [Vec<u64>; 5] = Default::default();
    for (key, ask) in &ask {
        let trip = || {
            let (asked, answered, answer) = (asked.get(key)?, answered.get(key)?, answer.get(key)?);
            let host_out = ask[stage::SENT]?.checked_sub(ask[stage::ARRIVED]?)?;
            let away = answer[stage::RECEIVED]?.checked_sub(ask[stage::SENT]?)?;
            let host_in = answer[stage::DELIVERED]?.checked_sub(answer[stage::RECEIVED]?)?;
            let box_in = asked[stage::DELIVERED]?.checked_sub(asked[stage::RECEIVED]?)?;
            let device = answered[stage::ARRIVED]?.checked_sub(asked[stage::DELIVERED]?)?;
            let box_out = answered[stage::SENT]?.checked_sub(answered[stage::ARRIVED]?)?;
            // Two clocks that do not run at quite the same rate may leave less than nothing.
            let network = away.saturating_sub(box_in + device + box_out);
            Some([host_out + away + host_in, device, network, host_out + host_in, box_in + box_out])
        };
        if let Some(trip) = trip() {
            for (all, part) in parts.iter_mut().zip(trip) {
                all.push(part);
            }
        }
    }
    let samples = parts[0].len();
    let [total_ns, original_ns, network_ns, host_conversion_ns, box_conversion_ns] =
        parts.map(median);
    Split { samples, total_ns, original_ns, network_ns, host_conversion_ns, box_conversion_ns }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(peer: u64, kind: Kind, at: [u64; 6]) -> Stamp {
        let at = at.map(|t| (t > 0).then_some(t));
        let (slot, function, epoch) = (1, 0, "0.1".into());
        let (index, generation) = (Some(3), Some(9));
        Stamp { peer, slot, function, epoch, from_host: true, kind, index, generation, at }
    }

    #[test]
    fn the_parts_add_up_whatever_the_two_clocks_say() {
        // Host: out 30, away 1000, in 20. Box, on another clock: in 40, device 500, out 60. The
        // host has stamps with another box, too, whose binding has the same name.
        let of_host = vec![
            stamp(2, Kind::Request, [100, 110, 130, 0, 0, 0]),
            stamp(2, Kind::Completion, [0, 0, 0, 1130, 1140, 1150]),
            stamp(3, Kind::Request, [200, 210, 230, 0, 0, 0]),
            stamp(3, Kind::Completion, [0, 0, 0, 9130, 9140, 9150]),
        ];
        let of_box = vec![
            stamp(1, Kind::Request, [0, 0, 0, 77_000, 77_010, 77_040]),
            stamp(1, Kind::Completion, [77_540, 77_550, 77_600, 0, 0, 0]),
        ];
        let (host, at_box) =
            (Stamps { node: 1, stamps: of_host }, Stamps { node: 2, stamps: of_box });
        let split = split(&host, &at_box);
        assert_eq!(split.samples, 1);
        assert_eq!(split.total_ns, 1050);
        assert_eq!(split.original_ns, 500);
        assert_eq!(split.host_conversion_ns, 50);
        assert_eq!(split.box_conversion_ns, 100);
        assert_eq!(split.network_ns, 400);
    }

    #[test]
    fn halves_without_their_other_half_do_not_count() {
        let stamps = vec![stamp(2, Kind::Request, [100, 110, 130, 0, 0, 0])];
        let (host, at_box) = (Stamps { node: 1, stamps }, Stamps { node: 2, stamps: vec![] });
        assert_eq!(split(&host, &at_box).samples, 0);
    }
}
