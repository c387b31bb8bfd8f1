//! The link: a pair of them, what is done with them, and what the network does with their frames.
//! Every TLP comes at most once, with its own bytes, in an order that PCIe allows; and when the
//! trouble is over, all of them have come, or the link or the binding is down.

use crate::input::Input;
use crate::pair::Pair;

/// Steps of one input; the rest of it is not used.
pub(crate) const STEPS: usize = 400;

/// Takes one byte of settings, and steps.
pub fn run(data: &[u8]) {
    play(data, false);
}

pub(crate) fn play(data: &[u8], hostile: bool) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(input.u8(), hostile);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        pair.step(&mut input);
    }
    pair.settle();
}
