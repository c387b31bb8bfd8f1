//! Maps whose copies share their records.

use imbl::OrdMap;
use std::borrow::Borrow;
use std::fmt;
use std::ops::{Index, RangeBounds};
use std::sync::Arc;

/// Records by key. As an [`OrdMap`] it is cheap to copy; and where a change has to copy a node of
/// its tree, the records in the node are not copied with it.
#[derive(Clone)]
pub struct Kept<K, V>(OrdMap<K, Arc<V>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(OrdMap::new())
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Kept<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Ord, V: PartialEq> PartialEq for Kept<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Ord, V> Kept<K, V> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one with this key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map(Arc::as_ref)
    }

    /// The one with this key, with the key as it is kept.
    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.0.get_key_value(key).map(|(key, record)| (key, record.as_ref()))
    }

    /// Whether there is one with this key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Keys and records, in the order of the keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, record)| (key, record.as_ref()))
    }

    /// As [`Kept::iter`], of the keys in a range.
    pub fn range<R, Q>(&self, range: R) -> impl DoubleEndedIterator<Item = (&K, &V)>
    where
        R: RangeBounds<Q>,
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.0.range(range).map(|(key, record)| (key, record.as_ref()))
    }

    /// The keys in their order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.keys()
    }

    /// The records in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.iter().map(|(_, record)| record)
    }

    /// The lowest key and its record.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.0.get_min().map(|(key, record)| (key, record.as_ref()))
    }
}

impl<K: Ord + Clone, V> Kept<K, V> {
    /// Adds or replaces one. What was there.
    pub(super) fn insert(&mut self, key: K, record: impl Into<Arc<V>>) -> Option<Arc<V>> {
        self.0.insert(key, record.into())
    }

    /// Takes one out.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }
}

impl<K, V, Q> Index<&Q> for Kept<K, V>
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
{
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        &self.0[key]
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a Kept<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        Iter(self.0.iter())
    }
}

/// What [`Kept::iter`] gives, with a name.
pub struct Iter<'a, K, V>(imbl::ordmap::Iter<'a, K, Arc<V>, imbl::shared_ptr::DefaultSharedPtr>);

impl<'a, K: Ord, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, record)| (key, record.as_ref()))
    }
}
