//! Why a request gets what it gets, and why nothing fits, constraint by constraint.
//!
//! This looks at every device, and is only done for who asks why, or gets nothing.

use super::choose::{Chooser, Demand, Place};
use super::constraints::{
    About, Constraint, HOST_CARRIES, IN_ISLAND, KEPT, at_rate, constraints, is_kept_back,
};
use super::filter::Device;
use super::{Liveness, PlanRequest, held, view};
use crate::records::pool::{BoxEntry, SlotEntry};
use crate::types::{
    Amount, Candidate, ConstraintView, Explanation, PlannedSlot, Problem, ProblemCode, SlotStatus,
    Together,
};
use std::collections::{BTreeMap, HashMap};
use tlp_codec::ids::{NodeId, PortId};

/// Slots that are named one by one; of more, only how many.
const NAMED: usize = 8;

/// Most boxes that are named as candidates.
const CANDIDATES: usize = 16;

/// There are not enough slots, not enough ports, or both.
pub(super) fn nothing_fits<L: Liveness>(chooser: &Chooser<'_, L>, ports: &[PortId]) -> Problem {
    let survey = Survey::of(chooser);
    let reasons = survey.obstacles(chooser, ports);
    let request = chooser.filter.request;
    let detail =
        format!("cannot lend {} to {}: {}", request.count, request.host, reasons.join("; "));
    Problem::new(ProblemCode::NothingFits, detail).because(reasons).passing(survey.passing)
}

/// Why these slots, or why none.
pub(super) fn explain<L: Liveness>(
    chooser: &Chooser<'_, L>,
    chosen: Option<&[Place]>,
    ports: &[PortId],
) -> Explanation {
    let survey = Survey::of(chooser);
    let request = chooser.filter.request;
    let pool = chooser.filter.tables.pool();
    let chosen = chosen.unwrap_or_default();
    let slots = chosen.iter().zip(ports).map(|((node, slot), port)| {
        let entry = pool.get(*node).expect("it was chosen from there");
        let found = entry.slot(*slot).expect("it was chosen from there");
        PlannedSlot {
            slot: entry.address(*slot),
            model: found.profile.map(|id| pool.profile(id).model.clone()).unwrap_or_default(),
            port: port.get(),
            rack: entry.rack.as_ref().map(ToString::to_string),
            island: found.island,
        }
    });
    let reasons = match chosen.is_empty() {
        true => survey.obstacles(chooser, ports),
        false => survey.choice(chooser, chosen),
    };
    let mut candidates: Vec<Candidate> = survey.boxes.values().cloned().collect();
    candidates.sort_by_key(|found| std::cmp::Reverse(found.usable));
    candidates.truncate(CANDIDATES);
    Explanation {
        host: request.host.clone(),
        wanted: request.count,
        slots: slots.collect(),
        devices: survey.devices,
        constraints: survey.constraints,
        candidate_boxes: survey.boxes.len(),
        candidates,
        free_ports: ports.len(),
        host_bandwidth_left: chooser.room,
        reasons,
    }
}

/// One look at every device.
struct Survey {
    devices: usize,
    constraints: Vec<ConstraintView>,
    /// Devices that will do by what they are and where.
    matching: usize,
    /// Those of them that can be had now.
    free: usize,
    /// As many of them as may be taken together: spares of their models are kept.
    may: usize,
    /// Those of them that have a kept model, by its number.
    of_kept: BTreeMap<usize, usize>,
    /// By their models.
    models: BTreeMap<String, usize>,
    /// Why devices that will do cannot be had.
    blocked: Vec<String>,
    /// How many more there are of those.
    more: usize,
    /// What ends that those are held back of which it is said.
    ends: Vec<String>,
    /// Where they are that can be had.
    boxes: BTreeMap<NodeId, Candidate>,
    /// Of how many the boxes' own bandwidth is enough, whatever the host has: of all, and of one.
    carried: (usize, usize),
    /// Most of them in one island, and where that is.
    island: Option<(usize, String)>,
    /// Whether what stands in the way may pass by itself.
    passing: bool,
    /// The least that one takes of those that the host alone has no bandwidth for.
    host_lacks: Option<u64>,
}

impl Survey {
    fn of<L: Liveness>(chooser: &Chooser<'_, L>) -> Self {
        let filter = chooser.filter;
        let pool = filter.tables.pool();
        let ready = |entry: &BoxEntry| (entry.node, chooser.live.is_ready(&entry.name));
        let connected: HashMap<NodeId, bool> = pool.boxes().map(ready).collect();
        let asked = constraints(chooser, &connected);
        let view =
            |c: &Constraint<'_>| ConstraintView { constraint: c.text.clone(), removes: 0, left: 0 };
        let mut survey = Self {
            devices: 0,
            constraints: asked.iter().map(view).collect(),
            matching: 0,
            free: 0,
            may: 0,
            of_kept: BTreeMap::new(),
            models: BTreeMap::new(),
            blocked: Vec::new(),
            more: 0,
            ends: Vec::new(),
            boxes: BTreeMap::new(),
            carried: (0, 0),
            island: None,
            passing: false,
            host_lacks: None,
        };
        for entry in pool.boxes() {
            let in_scope = filter.request.wishes.box_name.as_ref().is_none_or(|b| *b == entry.name);
            survey.passing |= in_scope && chooser.live.is_connecting(&entry.name);
            survey.look_at(chooser, entry, &asked, in_scope);
        }
        let scarce = filter.kept.scarce().map(|(at, kept)| {
            let free = survey.of_kept.get(&at).copied().unwrap_or(0);
            free.saturating_sub(kept.left as usize)
        });
        let back: usize = scarce.sum();
        survey.may = survey.free - back;
        if let Some(view) = survey.constraints.iter_mut().find(|view| view.constraint == KEPT) {
            (view.removes, view.left) = (view.removes + back, survey.may);
        }
        survey
    }

    fn look_at<L: Liveness>(
        &mut self,
        chooser: &Chooser<'_, L>,
        entry: &BoxEntry,
        asked: &[Constraint<'_>],
        in_scope: bool,
    ) {
        let pool = chooser.filter.tables.pool();
        let mut demands = Vec::new();
        let mut islands: BTreeMap<u8, usize> = BTreeMap::new();
        for slot in &entry.slots {
            let Some(id) = slot.profile else { continue };
            let device = Device { profile: pool.profile(id), entry, slot };
            self.devices += 1;
            let (mut matches, mut all, mut failed, mut host_carries) = (true, true, 0, true);
            for (constraint, view) in asked.iter().zip(&mut self.constraints) {
                let holds = (constraint.holds)(device);
                view.removes += usize::from(!holds);
                failed += usize::from(!holds);
                host_carries &= holds || constraint.text != HOST_CARRIES;
                all &= holds;
                view.left += usize::from(all);
                matches &= holds || constraint.about == About::Now;
            }
            if in_scope {
                *self.models.entry(device.profile.model.clone()).or_default() += 1;
            }
            self.matching += usize::from(matches);
            if all {
                self.free += 1;
                let each = device.profile.demand(&chooser.filter.request.link);
                let kept = chooser.filter.kept.get(id);
                demands.push(Demand { each, kept, count: 1 });
                if let Some(kept) = kept {
                    *self.of_kept.entry(kept).or_default() += 1;
                }
                if let Some(island) = slot.island {
                    *islands.entry(island).or_default() += 1;
                }
            } else if matches {
                self.passing |= slot.status.is_passing();
                if failed == 1 && !host_carries {
                    let each = device.profile.demand(&chooser.filter.request.link);
                    self.host_lacks = self.host_lacks.into_iter().chain([each]).min();
                }
                self.block(chooser, entry, slot);
            }
        }
        if demands.is_empty() {
            return;
        }
        for (island, count) in islands {
            if self.island.as_ref().is_none_or(|(most, _)| count > *most) {
                self.island = Some((count, format!("island {island} of {}", entry.name)));
            }
        }
        let devices = demands.len();
        let (box_name, bandwidth_left) = (entry.name.clone(), entry.shape().room);
        let budget = chooser.filter.kept.budget();
        let carried = chooser.usable(bandwidth_left, &mut demands, devices, &budget);
        self.carried = (self.carried.0 + carried, self.carried.1.max(carried));
        // Those that come later have the host's bandwidth one after the other.
        let room = match chooser.filter.request.beside {
            0 => bandwidth_left.min(chooser.room),
            _ => bandwidth_left,
        };
        let usable = chooser.usable(room, &mut demands, devices, &budget);
        self.boxes.insert(entry.node, Candidate { box_name, devices, usable, bandwidth_left });
    }

    /// Notes why a device that will do cannot be had.
    fn block<L: Liveness>(&mut self, chooser: &Chooser<'_, L>, entry: &BoxEntry, slot: &SlotEntry) {
        if self.blocked.len() >= NAMED {
            self.more += 1;
            return;
        }
        let tables = chooser.filter.tables;
        let address = entry.address(slot.slot);
        let reason = if !chooser.live.is_ready(&entry.name) {
            format!("{address}: box {} is not connected", entry.name)
        } else if let Some(binding) = tables.binding_at_slot(&address) {
            format!("{address}: {} by host {}", slot.status, binding.owner())
        } else if slot.status != SlotStatus::Free {
            // Of a box that is held back it is the same for each of its slots.
            let hold = tables.hold_of(&address).filter(|_| slot.status == SlotStatus::Held);
            let end = hold.map(|hold| held::end(tables, hold));
            self.ends.extend(end.filter(|end| !self.ends.contains(end)));
            view::not_free(tables, &address, slot.status)
        } else if is_kept_back(chooser, slot) {
            format!("{address} is free, and kept as a spare")
        } else {
            let profile = tables.pool().profile(slot.profile.expect("it has a device"));
            let demand = Amount(profile.demand(&chooser.filter.request.link));
            if demand.0 > entry.shape().room {
                format!(
                    "{address}: box {} has {} of {} bytes/s left, {demand} needed",
                    entry.name,
                    Amount(entry.shape().room),
                    Amount(entry.capacity),
                )
            } else {
                format!("{address}: {demand} bytes/s needed, more than the host has left")
            }
        };
        self.blocked.push(reason);
    }

    /// What stood in the way.
    fn obstacles<L: Liveness>(&self, chooser: &Chooser<'_, L>, ports: &[PortId]) -> Vec<String> {
        let request = chooser.filter.request;
        let wanted = request.count as usize;
        let mut reasons = Vec::new();
        if ports.len() < wanted {
            let size = chooser.filter.tables.nodes().get(&request.host).map_or(0, |n| n.size);
            reasons.push(format!(
                "host {} has {} of {size} ports free, {wanted} needed",
                request.host,
                ports.len(),
            ));
        }
        reasons.extend(self.spares(chooser));
        // Without ports nothing was chosen.
        let only_ports =
            || ports.len() < wanted && request.slot.is_none() && chooser.choose().is_some();
        if self.may < wanted {
            self.too_few(chooser, &mut reasons);
        } else if !only_ports() {
            self.not_together(chooser, &mut reasons);
        }
        reasons
    }

    /// Of which models spares are kept.
    fn spares<L: Liveness>(&self, chooser: &Chooser<'_, L>) -> Vec<String> {
        let filter = chooser.filter;
        let meant = filter.kept.scarce().filter(|(_, kept)| {
            let is_there = self.models.keys().any(|model| model.eq_ignore_ascii_case(&kept.model));
            is_there && filter.has_model(&kept.model)
        });
        let reason = |kept: &super::kept::Kept| {
            format!(
                "{} of {:?} are kept as spares, {} may be taken; only `dxpu-manager replace` takes \
                 more",
                kept.keep, kept.model, kept.left
            )
        };
        meant.map(|(_, kept)| reason(kept)).collect()
    }

    /// What there is of islands, if that is for what nothing is left that will do.
    fn no_island(&self, request: &PlanRequest) -> Option<String> {
        let none_left = self.constraints.iter().find(|c| c.left == 0 && self.devices > 0)?;
        if none_left.constraint == IN_ISLAND {
            return Some("none of them is in an island; the inventory says which are".to_owned());
        }
        let rate = request.wishes.island_rate?;
        (none_left.constraint == at_rate(rate)).then(|| {
            format!(
                "none of them is in an island whose devices reach each other at {} bytes/s; the \
                 inventory says how fast they do",
                Amount(rate)
            )
        })
    }

    fn too_few<L: Liveness>(&self, chooser: &Chooser<'_, L>, reasons: &mut Vec<String>) {
        let request = chooser.filter.request;
        let wishes = &request.wishes;
        let place = wishes.box_name.as_ref().map(|name| match request.slot {
            Some(slot) => format!(" in slot {name}/{slot}"),
            None => format!(" in box {name}"),
        });
        let of_model = wishes.model.as_ref().map(|model| format!(" with model {model:?}"));
        let more = !wishes.selector.is_empty()
            || wishes.cel.is_some()
            || !wishes.exclude.is_empty()
            || wishes.together == Together::Island
            || self.constraints.iter().any(|c| c.constraint.starts_with("reached by"));
        let what = format!(
            "{}{}{}",
            of_model.unwrap_or_default(),
            place.unwrap_or_default(),
            if more { " that will do" } else { "" }
        );
        reasons.push(match self.matching {
            0 => format!("no device{what}"),
            matching => {
                let (may, wanted) = (self.may, request.count);
                format!("{may} of {matching}{what} can be lent now, {wanted} needed")
            }
        });
        let each = if request.count > 1 { " for each" } else { "" };
        reasons.extend(self.host_lacks.map(|demand| host_bandwidth(chooser, demand, each)));
        if more {
            let removing = self.constraints.iter().filter(|c| c.removes > 0);
            reasons.extend(removing.map(|c| {
                format!(
                    "{}: alone leaves {} of {}",
                    c.constraint,
                    self.devices - c.removes,
                    self.devices
                )
            }));
        }
        reasons.extend(self.no_island(request).filter(|_| self.matching == 0));
        let is_there = |model: &String| chooser.filter.has_model(model);
        if self.matching == 0 && !self.models.is_empty() && !self.models.keys().any(is_there) {
            let list = self.models.iter().map(|(model, count)| format!("{model:?} ({count})"));
            let list = list.collect::<Vec<_>>().join(", ");
            reasons.push(format!("models there are: {list}"));
        }
        reasons.extend(self.blocked.iter().cloned());
        if self.more > 0 {
            reasons.push(format!("and {} more", self.more));
        }
        reasons.extend(self.ends.iter().cloned());
    }

    /// There are enough, but not as they have to be.
    fn not_together<L: Liveness>(&self, chooser: &Chooser<'_, L>, reasons: &mut Vec<String>) {
        let request = chooser.filter.request;
        let wanted = request.count as usize;
        // There has to be room for those that come later, too.
        let all = wanted + request.beside as usize;
        let nearest = self.boxes.values().max_by_key(|found| (found.usable, found.devices));
        let together = request.wishes.together;
        // Whether one box or island has them, so that it is for bandwidth that they are not lent.
        let mut are_together = false;
        if let Some(found) = nearest
            && together == Together::Box
        {
            are_together = self.boxes.values().any(|found| found.devices >= all);
            if found.usable < all {
                reasons.push(format!(
                    "no box has {all} of them with bandwidth for all; the nearest, {}, has {} and \
                     bandwidth for {}",
                    found.box_name, found.devices, found.usable
                ));
            }
        }
        if together == Together::Island {
            let (count, place) = self.island.as_ref().expect("those that will do are in islands");
            are_together = *count >= all;
            if !are_together {
                reasons.push(format!(
                    "no island has {all} of them; the nearest, {place}, has {count}"
                ));
            }
        }
        if together == Together::Spread && self.boxes.len() < wanted {
            let count = self.boxes.len();
            reasons.push(format!("they are in {count} boxes, {wanted} needed to spread them"));
        }
        let demand = self.least_demand(chooser, wanted);
        let host_is_short = demand > chooser.room;
        if host_is_short {
            reasons.push(host_bandwidth(chooser, demand, ""));
        }
        let (carried, by_one) = self.carried;
        let boxes_are_short = carried < all || (are_together && (by_one < all || !host_is_short));
        let free = self.free;
        if boxes_are_short {
            reasons.push(format!(
                "the boxes' bandwidth is enough for {carried} of {free}, in one box for {by_one}; if \
                 their proxies carry more, say so in the inventory (boxes.NAME.capacity)"
            ));
        } else if reasons.is_empty() {
            reasons.push(format!("each of {free} can be lent, and no {all} of them as wished"));
        }
    }

    /// The least bandwidth that so many of the devices that can be had take.
    fn least_demand<L: Liveness>(&self, chooser: &Chooser<'_, L>, wanted: usize) -> u64 {
        let filter = chooser.filter;
        let entries = self.boxes.keys().filter_map(|node| filter.tables.pool().get(*node));
        let mut demands: Vec<u64> = entries
            .flat_map(|entry| entry.slots.iter().filter_map(|slot| filter.slot_fits(entry, slot)))
            .collect();
        demands.sort_unstable();
        demands.into_iter().take(wanted).fold(0, u64::saturating_add)
    }

    /// That of the paths that are wished none is there.
    fn no_path<L: Liveness>(&self, chooser: &Chooser<'_, L>, chosen: &[Place]) -> Option<String> {
        let (tables, request) = (chooser.filter.tables, chooser.filter.request);
        let at_host = chooser.live.paths(&request.host)?;
        let wished = &request.link.paths;
        let mut boxes = chosen.iter().filter_map(|(node, _)| tables.pool().get(*node));
        let without = boxes.find(|entry| {
            let common = chooser.live.paths(&entry.name).map_or(0, |paths| paths.min(at_host));
            common > 0
                && !wished.is_empty()
                && wished.iter().all(|path| usize::from(*path) >= common)
        })?;
        let list = wished.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Some(format!(
            "of the paths {list} that are wished {} and the host have none; they use those that they have",
            without.name
        ))
    }

    /// Why these slots.
    fn choice<L: Liveness>(&self, chooser: &Chooser<'_, L>, chosen: &[Place]) -> Vec<String> {
        let request = chooser.filter.request;
        let pool = chooser.filter.tables.pool();
        let mut by_box: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (node, _) in chosen {
            *by_box.entry(*node).or_default() += 1;
        }
        let mut reasons =
            vec![format!("{} devices in {} boxes will do", self.free, self.boxes.len())];
        reasons.extend(self.no_path(chooser, chosen));
        for (node, count) in &by_box {
            let entry = pool.get(*node).expect("it was chosen from there");
            let all = self.boxes.get(node).map_or(0, |found| found.devices);
            let kind = entry.shape().kind;
            let place = entry.rack.as_ref().map(|rack| format!(" in rack {rack}"));
            reasons.push(format!(
                "{count} of {all} in {}{}, a {kind} box: {}",
                entry.name,
                place.unwrap_or_default(),
                match (request.slot, request.wishes.together, by_box.len()) {
                    (Some(_), _, _) => "the slot that was named".to_owned(),
                    (_, Together::Spread, _) => "each in another box, as wished".to_owned(),
                    (_, Together::Island, _) =>
                        "the island that is left with the fewest".to_owned(),
                    (_, _, 1) => why_this_box(chooser, entry),
                    _ => "no box has enough; those first that have most".to_owned(),
                }
            ));
        }
        reasons
    }
}

/// Why everything is of this box.
fn why_this_box<L: Liveness>(chooser: &Chooser<'_, L>, entry: &BoxEntry) -> String {
    let request = chooser.filter.request;
    let (rack, site) = chooser.filter.tables.pool().facts().place_of_host(&request.host);
    let of_those = match request.wishes.near {
        true if rack.is_some() && rack == entry.rack => "of those in the host's rack ",
        true if site.is_some() && site == entry.site => "of those at the host's site ",
        _ => "",
    };
    // Else what is left over goes by what is free there, whether it will do or not.
    let fewest = match chooser.filter.goes_by_shape() {
        true => ", and of those the box that is left with the fewest",
        false => "",
    };
    format!("one box has enough; {of_those}it breaks the fewest islands{fewest}")
}

/// That a host has not enough bandwidth left.
fn host_bandwidth<L: Liveness>(chooser: &Chooser<'_, L>, demand: u64, each: &str) -> String {
    let host = &chooser.filter.request.host;
    let (capacity, _) = chooser.filter.tables.host_bandwidth(host);
    format!(
        "host {host} has {} of {} bytes/s left, {} needed{each}; if it carries more, say so in the inventory \
         (hosts.{host}.capacity)",
        Amount(chooser.room),
        Amount(capacity),
        Amount(demand),
    )
}
