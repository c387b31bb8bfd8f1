//! Counters with their names: structures of nothing else, and the list of all that a role has.

use crate::limits::SURROUNDINGS;
use heapless::Vec;

/// Counters in a list beside those of what is around the core: of a role, its switch, node and links.
const OWN: usize = 144;

/// Names and values, in the order in which they were added.
///
/// Gathered, since iterators of so many parts, one behind the other, are kilobytes of a card's code.
#[derive(Default)]
pub(crate) struct CounterList(Vec<(&'static str, u64), { OWN + SURROUNDINGS }>);

impl CounterList {
    /// Adds counters, each with the name in the same place.
    ///
    /// # Panics
    ///
    /// When there are more than the list has room for.
    pub(crate) fn add(&mut self, counters: impl IntoIterator<Item = (&'static str, u64)>) {
        for counter in counters {
            // Not `expect`, which could print a counter: that is kilobytes of a card's code.
            assert!(self.0.push(counter).is_ok(), "the list has room for all counters");
        }
    }

    /// Adds a structure of counters.
    pub(crate) fn add_all(&mut self, counters: &impl Counters) {
        self.add_values(counters.names(), counters.values());
    }

    /// Adds values, each with the name in the same place.
    pub(crate) fn add_values(&mut self, names: &[&'static str], values: &[u64]) {
        debug_assert_eq!(names.len(), values.len());
        self.add(names.iter().copied().zip(values.iter().copied()));
    }
}

impl IntoIterator for CounterList {
    type Item = (&'static str, u64);
    type IntoIter = <Vec<(&'static str, u64), { OWN + SURROUNDINGS }> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A structure that has counters and nothing else: what [`counters!`] makes.
pub(crate) trait Counters {
    /// By the order of [`values`](Counters::values).
    fn names(&self) -> &'static [&'static str];

    /// In the order of the structure's fields.
    fn values(&self) -> &[u64];

    /// To add to them.
    fn values_mut(&mut self) -> &mut [u64];

    /// Adds what another counted.
    fn add(&mut self, other: &Self) {
        for (sum, more) in self.values_mut().iter_mut().zip(other.values()) {
            *sum += more;
        }
    }
}

/// Makes a structure of counters, each with its name.
macro_rules! counters {
    (
        $(#[$about:meta])* $visible:vis struct $Struct:ident {
            $($(#[$doc:meta])* $name:ident = $text:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        $visible struct $Struct {
            $($(#[$doc])* $visible $name: u64,)*
        }

        impl $Struct {
            const NAMES: &[&str] = &[$($text,)*];
        }

        impl $crate::counters::Counters for $Struct {
            fn names(&self) -> &'static [&'static str] {
                Self::NAMES
            }

            fn values(&self) -> &[u64] {
                bytemuck::must_cast_slice(core::slice::from_ref(self))
            }

            fn values_mut(&mut self) -> &mut [u64] {
                bytemuck::must_cast_slice_mut(core::slice::from_mut(self))
            }
        }
    };
}

pub(crate) use counters;

#[cfg(test)]
mod tests {
    use super::*;

    counters! {
        struct Fruit {
            apples = "fruit: apples",
            pears = "fruit: pears",
        }
    }

    #[test]
    fn counters_are_listed_by_the_names_that_stand_beside_them() {
        let mut sum = Fruit { apples: 1, pears: 2 };
        sum.add(&Fruit { apples: 10, pears: 20 });
        let mut list = CounterList::default();
        list.add([("vegetables", 3)]);
        list.add_all(&sum);
        let expected = [("vegetables", 3), ("fruit: apples", 11), ("fruit: pears", 22)];
        assert!(list.into_iter().eq(expected));
    }
}
