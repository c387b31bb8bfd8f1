//! Spares that are kept: how many slots of a model a request may take.

use super::Liveness;
use crate::records::Tables;
use crate::records::pool::ProfileId;
use crate::spares::SparesConfig;

/// A model of which spares are kept, and not so many are free that this does not matter.
pub(super) struct Kept {
    pub(super) model: String,
    /// So many are kept.
    pub(super) keep: u32,
    /// So many of those that are free may be taken; known to be enough, if as many as are wanted.
    pub(super) left: u32,
}

/// The models of which a request may not take as many as it wants.
#[derive(Default)]
pub(super) struct KeptModels {
    all: Vec<Kept>,
    /// By the profile's number, where it is in `all`.
    of: Vec<Option<usize>>,
}

impl KeptModels {
    /// What is left above the spares, for a request for `count`.
    pub(super) fn of(
        config: &SparesConfig,
        count: u32,
        tables: &Tables,
        live: &impl Liveness,
    ) -> Self {
        let mut found = Self::default();
        // Most pools keep none, and then nothing is counted.
        if !config.keeps_any() {
            return found;
        }
        let mut profiles: Vec<Vec<ProfileId>> = Vec::new();
        for (id, profile) in tables.pool().profiles() {
            let (keep, model) = (config.keep(&profile.model), &profile.model);
            if keep == 0 {
                continue;
            }
            match found.all.iter().position(|kept| kept.model.eq_ignore_ascii_case(model)) {
                Some(at) => profiles[at].push(id),
                None => {
                    found.all.push(Kept { model: model.clone(), keep, left: 0 });
                    profiles.push(vec![id]);
                }
            }
        }
        for (at, (kept, own)) in found.all.iter_mut().zip(&profiles).enumerate() {
            // How many more than are wanted does not matter.
            let enough = u64::from(kept.keep) + u64::from(count);
            let free = tables.pool().free_of(own, enough, |name| live.is_ready(name));
            let left = free.saturating_sub(kept.keep.into());
            kept.left = u32::try_from(left).unwrap_or(u32::MAX);
            if kept.left < count {
                for id in own {
                    let index = id.0 as usize;
                    found.of.resize(found.of.len().max(index + 1), None);
                    found.of[index] = Some(at);
                }
            }
        }
        found
    }

    /// The model of a profile, if not as many of it may be taken as are wanted.
    pub(super) fn get(&self, profile: ProfileId) -> Option<usize> {
        self.of.get(profile.0 as usize).copied().flatten()
    }

    /// Whether nothing of a profile may be taken.
    pub(super) fn keeps_back(&self, profile: ProfileId) -> bool {
        self.get(profile).is_some_and(|at| self.all[at].left == 0)
    }

    /// Those of which not as many may be taken as are wanted, with their numbers.
    pub(super) fn scarce(&self) -> impl Iterator<Item = (usize, &Kept)> {
        let is_scarce = |(at, _): &(usize, &Kept)| self.of.contains(&Some(*at));
        self.all.iter().enumerate().filter(is_scarce)
    }

    /// What may be taken.
    pub(super) fn budget(&self) -> Budget {
        match self.of.is_empty() {
            true => Budget(Vec::new()),
            false => Budget(self.all.iter().map(|kept| kept.left as usize).collect()),
        }
    }
}

/// How many of each kept model may still be taken; empty if that does not matter to the request.
///
/// Sets of slots of which no model has more than it may have are the independent sets of a
/// partition matroid, so that who takes the best one that may be taken, one after the other, ends
/// with the best set, and with as many as can be (J. Edmonds, "Matroids and the greedy algorithm",
/// Mathematical Programming 1, 1971).
#[derive(Clone)]
pub(super) struct Budget(Vec<usize>);

impl Budget {
    /// So many of each.
    #[cfg(test)]
    pub(super) fn of(each: &[usize]) -> Self {
        Self(each.to_vec())
    }

    /// Whether any model is short.
    pub(super) fn matters(&self) -> bool {
        !self.0.is_empty()
    }

    /// How many kept models there are.
    pub(super) fn models(&self) -> usize {
        self.0.len()
    }

    /// Takes so many of a model, or as many as may be: how many.
    pub(super) fn take(&mut self, kept: Option<usize>, count: usize) -> usize {
        let Some(at) = kept else { return count };
        let taken = count.min(self.0[at]);
        self.0[at] -= taken;
        taken
    }
}
