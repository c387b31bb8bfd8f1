//! Whose turn it is to send, of a node's links: a deficit round robin (Shreedhar and Varghese, *Efficient
//! Fair Queueing using Deficit Round Robin*, SIGCOMM 1995) by the weight of those who send, and what goes
//! before all turns.

/// Bytes that a link may send in a turn, for each unit that those weigh who send by it.
const TURN: i32 = 1500;

/// What a link may owe at most, in bytes: what goes before all turns counts for them, too. It makes up for
/// that by half of each turn: there are others on it that have nothing before all turns.
const MOST_OWED: i32 = 1 << 16;

/// How much more goes before all turns than by them at most. Where more is guaranteed than there is, the
/// others' links stay up all the same.
const FIRST: i32 = 15;

/// What one link has of its turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// What is left of the one that it has, in bytes: below 0, what its last frame was too long by.
    left: i32,
    /// What it sent before all turns and did not make up for yet, in bytes.
    owed: i32,
}

impl Turn {
    /// Whether it may send in its turn, which may begin with that: it does not if its last frame was longer
    /// than several turns.
    pub(super) fn begins(&mut self, weight: u32) -> bool {
        if self.left <= 0 {
            let turn = weight as i32 * TURN;
            let paid = self.owed.min(turn / 2);
            self.owed -= paid;
            self.left += turn - paid;
        }
        self.left > 0
    }

    /// It had nothing to send in its turn: what is left of that is lost.
    pub(super) fn ends(&mut self) {
        self.left = self.left.min(0);
    }
}

/// Where among the links it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// Whose turn it is.
    pub(super) next: usize,
    /// Where the next one that goes before all turns is looked for.
    pub(super) first: usize,
    /// Bytes that may go before all turns until there is one.
    may_go_first: i32,
}

impl Turns {
    /// Whether something may go before all turns now.
    pub(super) fn may_go_first(&self) -> bool {
        self.may_go_first > 0
    }

    /// A link sent so much before all turns.
    pub(super) fn went_first(&mut self, index: usize, turn: &mut Turn, bytes: usize) {
        turn.owed = (turn.owed + bytes as i32).min(MOST_OWED);
        self.first = index + 1;
        self.may_go_first -= bytes as i32;
    }

    /// A link sent so much in its turn.
    pub(super) fn sent(&mut self, index: usize, turn: &mut Turn, bytes: usize) {
        turn.left = (turn.left - bytes as i32).max(-MOST_OWED);
        self.next = if turn.left > 0 { index } else { index + 1 };
        self.may_go_first = bytes as i32 * FIRST;
    }
}

#[cfg(test)]
mod tests;
