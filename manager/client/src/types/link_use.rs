//! How an allocation's devices use the links between the proxies.

use proxy_core::control::{PathSet, Share};
use proxy_core::limits::MAX_PATHS;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is wished of the links, for each device and each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinkUse {
    /// Paths that are used as long as one of them works; empty: all that there are.
    #[schema(max_items = 8)]
    pub paths: Vec<u8>,
    /// How much it gets of what all want: 2 is twice as much as 1.
    #[schema(minimum = 1)]
    pub weight: u8,
    /// Bytes a second that it is not to exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Bytes a second that it has before all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub guarantee: Option<u64>,
}

impl Default for LinkUse {
    fn default() -> Self {
        Self { paths: Vec::new(), weight: 1, limit: None, guarantee: None }
    }
}

impl LinkUse {
    /// Whether nothing is wished.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it: the field, and why.
    ///
    /// # Errors
    ///
    /// The name of the field, and a text for a person.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.paths.len() > MAX_PATHS {
            return Err(("paths", format!("at most {MAX_PATHS}, not {}", self.paths.len())));
        }
        if let Some(path) = self.paths.iter().find(|&&path| usize::from(path) >= MAX_PATHS) {
            return Err(("paths", format!("{path}: paths are numbered 0 to {}", MAX_PATHS - 1)));
        }
        if self.weight == 0 {
            return Err(("weight", "1 to 255".into()));
        }
        for (field, rate) in [("limit", self.limit), ("guarantee", self.guarantee)] {
            if rate == Some(0) {
                return Err((field, "at least 1 byte a second; leave it out for none".into()));
            }
        }
        if let (Some(limit), Some(guarantee)) = (self.limit, self.guarantee)
            && guarantee > limit
        {
            return Err(("guarantee", format!("{guarantee} is above the limit of {limit}")));
        }
        Ok(())
    }

    /// For the proxies.
    pub fn share(&self) -> Share {
        Share {
            weight: self.weight,
            limit: self.limit.unwrap_or(0),
            guarantee: self.guarantee.unwrap_or(0),
        }
    }

    /// Of the paths that two proxies have in common, those to use.
    pub fn path_set(&self, common: usize) -> PathSet {
        let PathSet(all) = PathSet::first(common);
        let wished = self.paths.iter().fold(0, |set, path| set | (1_u8 << (path % 8)));
        PathSet(if wished & all == 0 { all } else { wished & all })
    }

    /// As [`LinkUse::path_set`], without the paths that are held back (a bit for each): of those that
    /// are wished, or else of all, as long as one is left.
    pub fn path_set_without(&self, common: usize, held: u8) -> PathSet {
        let (PathSet(wished), PathSet(all)) = (self.path_set(common), PathSet::first(common));
        let choices = [wished & !held, all & !held, wished];
        PathSet(choices.into_iter().find(|set| *set != 0).unwrap_or(wished))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wished_paths_are_those_that_there_are() {
        let wish = |paths: &[u8]| LinkUse { paths: paths.to_vec(), ..LinkUse::default() };
        assert_eq!(wish(&[]).path_set(2), PathSet(0b11));
        assert_eq!(wish(&[1]).path_set(2), PathSet(0b10));
        assert_eq!(wish(&[1, 5]).path_set(2), PathSet(0b10));
        assert_eq!(wish(&[5]).path_set(2), PathSet(0b11), "none of them is there");
        assert_eq!(wish(&[]).path_set_without(2, 0b01), PathSet(0b10));
        assert_eq!(wish(&[0]).path_set_without(2, 0b01), PathSet(0b10), "none wished is left");
        assert_eq!(wish(&[0]).path_set_without(2, 0b11), PathSet(0b01), "none at all is left");
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let even = LinkUse::default();
        assert!(even.check().is_ok());
        for (wrong, field) in [
            (LinkUse { paths: vec![8], ..even.clone() }, "paths"),
            (LinkUse { paths: vec![0; 9], ..even.clone() }, "paths"),
            (LinkUse { weight: 0, ..even.clone() }, "weight"),
            (LinkUse { limit: Some(0), ..even.clone() }, "limit"),
            (LinkUse { limit: Some(5), guarantee: Some(6), ..even.clone() }, "guarantee"),
        ] {
            assert_eq!(wrong.check().unwrap_err().0, field);
        }
    }
}
