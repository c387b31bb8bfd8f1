//! Lists: in pages, if the client wants pages, and filtered.
//!
//! A page is asked for with `limit`; `next` in the answer, given as `cursor`, gets the one after
//! it. A cursor names the last item of its page, not a position: what was there before and after
//! all of it is listed once, whatever comes and goes meanwhile.

use super::extract::from_query;
use crate::types::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use manager_client::views::List;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

/// Most items of one page.
pub(super) const MAX_PAGE: usize = 10_000;

/// Which page.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// At most so many items; all if it is not given.
    #[param(minimum = 1, maximum = 10_000)]
    pub(super) limit: Option<usize>,
    /// Those after the page whose `next` this is. Only with the same filter.
    pub(super) cursor: Option<String>,
}

/// A filter `F`, and which page of what it lets through.
pub(super) struct Listing<F>(pub(super) F, pub(super) Paging);

impl<S: Send + Sync, F: DeserializeOwned> FromRequestParts<S> for Listing<F> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let pairs = form_urlencoded::parse(query).into_owned();
        let mut paging = Paging::default();
        let mut filter = form_urlencoded::Serializer::new(String::new());
        for (key, value) in pairs {
            let taken = match key.as_str() {
                "limit" => paging.limit.replace(limit(&value)?).is_some(),
                "cursor" => paging.cursor.replace(value).is_some(),
                _ => {
                    filter.append_pair(&key, &value);
                    continue;
                }
            };
            if taken {
                return Err(Problem::invalid(&key, "is given more than once"));
            }
        }
        Ok(Self(from_query(&filter.finish())?, paging))
    }
}

fn limit(text: &str) -> Result<usize, Problem> {
    match text.parse() {
        Ok(limit) if (1..=MAX_PAGE).contains(&limit) => Ok(limit),
        _ => Err(Problem::invalid("limit", format!("a number from 1 to {MAX_PAGE}"))),
    }
}

/// A cursor: the key of an item, as JSON in hexadecimal digits.
fn cursor(key: &impl Serialize) -> String {
    let json = serde_json::to_vec(key).expect("keys are JSON");
    json.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key<K: DeserializeOwned>(cursor: &str) -> Option<K> {
    if !cursor.is_ascii() || !cursor.len().is_multiple_of(2) {
        return None;
    }
    let digits = |at: usize| u8::from_str_radix(&cursor[at..at + 2], 16).ok();
    let json: Option<Vec<u8>> = (0..cursor.len()).step_by(2).map(digits).collect();
    serde_json::from_slice(&json?).ok()
}

impl Paging {
    /// The key of the last item of the page before, if this is not the first.
    ///
    /// # Errors
    ///
    /// When the cursor is none of this list.
    fn after<K: DeserializeOwned>(&self) -> Result<Option<K>, Problem> {
        let why = "give what the page before has as `next`, with the same path";
        let read = |text: &String| key(text).ok_or_else(|| Problem::invalid("cursor", why));
        self.cursor.as_ref().map(read).transpose()
    }

    /// The page of items whose keys go up. `view` makes an item, or leaves it out; it is asked
    /// only for those of the page.
    ///
    /// # Errors
    ///
    /// When the cursor is none of this list.
    pub(super) fn page<K, V, T>(
        &self,
        items: impl IntoIterator<Item = (K, V)>,
        mut view: impl FnMut(V) -> Option<T>,
    ) -> Result<List<T>, Problem>
    where
        K: Ord + Serialize + DeserializeOwned,
    {
        let after: Option<K> = self.after()?;
        let limit = self.limit.unwrap_or(usize::MAX);
        let (mut page, mut last) = (Vec::new(), None);
        for (key, value) in items {
            if after.as_ref().is_some_and(|after| key <= *after) {
                continue;
            }
            let Some(item) = view(value) else { continue };
            if page.len() == limit {
                // There is one more: the page's last item is where the next page goes on.
                return Ok(List { items: page, next: last.as_ref().map(cursor) });
            }
            page.push(item);
            last = Some(key);
        }
        Ok(List { items: page, next: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn all(items: &BTreeMap<String, u8>, limit: usize) -> Vec<u8> {
        let mut paging = Paging { limit: Some(limit), cursor: None };
        let mut seen = Vec::new();
        loop {
            let page = paging.page(items.clone(), |n| (n % 3 != 0).then_some(n)).unwrap();
            assert!(page.items.len() <= limit);
            seen.extend(page.items);
            match page.next {
                None => return seen,
                next => paging.cursor = next,
            }
        }
    }

    proptest! {
        #[test]
        fn pages_together_are_the_list(
            items in proptest::collection::btree_map(".{0,4}", any::<u8>(), 0..30),
            limit in 1..8usize,
        ) {
            let whole: Vec<u8> = items.values().copied().filter(|n| n % 3 != 0).collect();
            prop_assert_eq!(all(&items, limit), whole);
        }

        #[test]
        fn what_stays_is_listed_once_whatever_comes_and_goes(
            before in proptest::collection::btree_map(0..50u64, Just(()), 1..30),
            after in proptest::collection::btree_map(0..50u64, Just(()), 1..30),
            limit in 1..8usize,
        ) {
            let first = Paging { limit: Some(limit), cursor: None };
            let keys = |map: &BTreeMap<u64, ()>| map.keys().map(|k| (*k, *k)).collect::<Vec<_>>();
            let page = first.page(keys(&before), Some).unwrap();
            let mut seen = page.items;
            if let Some(next) = page.next {
                let rest = Paging { limit: None, cursor: Some(next) };
                seen.extend(rest.page(keys(&after), Some).unwrap().items);
                for key in before.keys().filter(|key| after.contains_key(key)) {
                    prop_assert_eq!(seen.iter().filter(|seen| *seen == key).count(), 1);
                }
            }
        }

        #[test]
        fn no_cursor_is_too_strange(text in ".*") {
            let paging = Paging { limit: None, cursor: Some(text) };
            let _ = paging.page([(1_u64, ())], Some);
        }
    }
}
