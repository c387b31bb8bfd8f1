use super::*;
use crate::bits::ones_from;
use std::vec::Vec;

/// A link that always has something to send.
#[derive(Clone, Copy)]
struct Link {
    weight: u32,
    /// Bytes of its frames, in its turn and before all turns.
    frame: usize,
    first: usize,
    /// What is guaranteed to somebody on it, in thousandths of what all send.
    guaranteed: i64,
}

const EVEN: Link = Link { weight: 2, frame: 9000, first: 9000, guaranteed: 0 };

/// Thousandths of all bytes that each link sent, before all turns and in its turns.
fn shares(links: &[Link]) -> Vec<[i64; 2]> {
    let (mut turns, mut own) = (Turns::default(), std::vec![Turn::default(); links.len()]);
    let (mut sent, mut whole) = (std::vec![[0; 2]; links.len()], 0);
    while whole < 1_000_000_000 {
        let all = u32::MAX >> (32 - links.len());
        let is_due = |index: &usize| whole * links[*index].guaranteed > sent[*index][0] * 1000;
        let first = ones_from(turns.first, all).find(is_due).filter(|_| turns.may_go_first());
        let (index, bytes) = if let Some(index) = first {
            let bytes = links[index].first;
            turns.went_first(index, &mut own[index], bytes);
            (index, bytes)
        } else {
            let mut begins =
                || ones_from(turns.next, all).find(|&i| own[i].begins(links[i].weight));
            let index = core::iter::repeat_with(&mut begins).take(10).flatten().next();
            let index = index.expect("nobody owes more than some turns");
            turns.sent(index, &mut own[index], links[index].frame);
            (index, links[index].frame)
        };
        sent[index][usize::from(first.is_none())] += bytes as i64;
        whole += bytes as i64;
    }
    sent.iter().map(|link| link.map(|bytes| bytes * 1000 / whole)).collect()
}

#[track_caller]
fn about(found: i64, wanted: i64) {
    assert!((found - wanted).abs() <= 10 + wanted / 20, "{found}, and not {wanted}");
}

#[test]
fn turns_are_as_long_as_the_weight() {
    let of = |weight, frame| Link { weight, frame, ..EVEN };
    let found = shares(&[of(1, 9000), of(2, 1500), of(5, 64), of(8, 9000)]);
    for (found, weight) in found.iter().zip([1, 2, 5, 8]) {
        about(found[1], weight * 1000 / 16);
    }
}

/// Wherever it is, and whatever it has.
#[test]
fn what_goes_first_takes_nobodys_turn() {
    for (frame, guaranteed) in [(1500, 100), (1500, 500), (9000, 100), (9000, 500)] {
        for place in 0..4 {
            let mut links = [Link { frame, ..EVEN }; 4];
            links[place] = Link { frame, first: frame, guaranteed, weight: 1 };
            let found = shares(&links);
            about(found[place][0], guaranteed);
            let others: Vec<_> = (0..4).filter(|other| *other != place).collect();
            others.iter().for_each(|&other| about(found[other][1], found[others[0]][1]));
        }
    }
}

/// It has half of its turns for who has no guarantee, and no more than its weight beside the others.
#[test]
fn who_is_beside_a_guarantee_on_a_link_has_something_of_its_turns() {
    for (guaranteed, weight) in [(300, 2), (500, 16), (100, 16)] {
        let with = Link { guaranteed, ..EVEN };
        let found = shares(&[with, Link { weight, ..EVEN }, Link { weight, ..EVEN }]);
        about(found[0][0], guaranteed);
        let turn = (1000 - guaranteed) * 2 / (2 + 2 * i64::from(weight));
        assert!((turn * 4 / 10..=turn).contains(&found[0][1]), "{found:?}, a turn is {turn}");
    }
}

/// As long as the sum is no more than there is but for a sixteenth, however small the frames are.
#[test]
fn guarantees_hold_up_to_nearly_all() {
    let with = Link { guaranteed: 450, first: 1500, ..EVEN };
    let found = shares(&[with, EVEN, with, EVEN]);
    about(found[0][0], 450);
    about(found[2][0], 450);
    let found = shares(&[Link { guaranteed: 1000, ..with }, EVEN, with, EVEN]);
    about(found[1][1] + found[3][1], 1000 / 16 * 4 / 5);
    assert!(found[0][0] > 400 && found[2][0] > 400, "{found:?}");
}
