//! Names of kernels and calls, each kept once.

use indexmap::IndexSet;

use super::model::NameId;

/// What all names of a trace may take together, in bytes. Templates make kernels' names kilobytes
/// long, but a program has some thousands of them.
pub(super) const NAME_BYTES: usize = 256 << 20;

/// The names of a trace, each kept once and known by its [`NameId`].
#[derive(Clone, Debug, Default)]
pub struct Names {
    known: IndexSet<Box<str>>,
    bytes: usize,
}

impl Names {
    /// The ID of a name, which is entered where it is new. `None` where it is new and there is no
    /// more room: `NAME_BYTES`.
    pub(super) fn enter(&mut self, name: &str) -> Option<NameId> {
        if let Some(known) = self.known.get_index_of(name) {
            return Some(NameId::of(known));
        }
        if self.bytes + name.len() > NAME_BYTES {
            return None;
        }
        self.bytes += name.len();
        Some(NameId::of(self.known.insert_full(name.into()).0))
    }

    /// What stands for names of further files where there is no more room.
    pub(super) fn overflow(&mut self) -> NameId {
        NameId::of(self.known.insert_full("(a name for which there was no room)".into()).0)
    }

    /// The name with this ID.
    ///
    /// # Panics
    ///
    /// Where the ID is of another trace and higher than any here.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        &self.known[id.index()]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn each_name_is_kept_once() {
        let mut names = Names::default();
        let long = "k".repeat(5000);
        let first = names.enter(&long).unwrap();
        let second = names.enter("other").unwrap();
        assert_eq!(names.enter(&long), Some(first));
        assert_eq!((names.get(first), names.get(second)), (long.as_str(), "other"));
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn there_is_an_end_of_room() {
        let mut names = Names::default();
        let most = "n".repeat(NAME_BYTES);
        assert!(names.enter(&most).is_some());
        assert_eq!(names.enter("more"), None);
        assert!(names.enter(&most).is_some(), "what is known stays known");
    }
}
