use super::*;

const BLOCK: usize = 512;

fn ledger() -> Ledger {
    Ledger::new(3, BLOCK, Medium::new())
}

fn block(ledger: &Ledger, block: u64, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    ledger.fill(block, version, &mut bytes);
    bytes
}

/// What a read of block 7 that takes no time says.
fn found(ledger: &mut Ledger, owner: u64, bytes: &[u8]) -> Result<(), String> {
    let snapshot = ledger.look(7..8);
    ledger.found(owner, 7, bytes, &snapshot)
}

#[test]
fn what_was_acknowledged_is_there_and_nothing_else() {
    let mut ledger = ledger();
    let owner = ledger.take();
    let first = ledger.begin(owner, 7..8, false);
    ledger.end(owner, 7..8, first, true);
    let mut bytes = block(&ledger, 7, first);
    assert_eq!(found(&mut ledger, owner, &bytes), Ok(()));
    assert!(found(&mut ledger, owner, &[0; BLOCK]).unwrap_err().contains("zeros"));
    assert!(ledger.look(8..9).may[0][0].zero);
    bytes[400] ^= 1;
    let error = found(&mut ledger, owner, &bytes).unwrap_err();
    assert!(error.contains("up to byte"), "{error}");
    let other = block(&ledger, 8, first);
    assert!(found(&mut ledger, owner, &other).unwrap_err().contains("block 8"));
}

#[test]
fn what_nobody_saw_end_leaves_the_old_or_the_new_until_somebody_looks() {
    let mut ledger = ledger();
    let owner = ledger.take();
    let old = ledger.begin(owner, 7..8, false);
    ledger.end(owner, 7..8, old, true);
    let new = ledger.begin(owner, 7..8, false);
    let (old, new) = (block(&ledger, 7, old), block(&ledger, 7, new));
    // While it is under way, either may be found, in any order of reads.
    assert_eq!(found(&mut ledger, owner, &old), Ok(()));
    assert_eq!(found(&mut ledger, owner, &new), Ok(()));
    assert_eq!(found(&mut ledger, owner, &old), Ok(()));
    let owner = ledger.take();
    let mut torn = old.clone();
    torn[256..].copy_from_slice(&new[256..]);
    assert!(found(&mut ledger, owner, &torn).is_err());
    assert_eq!(found(&mut ledger, owner, &old), Ok(()));
    assert!(found(&mut ledger, owner, &new).is_err(), "it was seen not to be there");
}

#[test]
fn writes_at_the_same_time_may_end_in_either_order() {
    let mut ledger = ledger();
    let owner = ledger.take();
    let [one, two] = [0; 2].map(|_| ledger.begin(owner, 7..8, false));
    ledger.end(owner, 7..8, two, true);
    ledger.end(owner, 7..8, one, true);
    assert_eq!(ledger.may[7].len(), 2);
    let bytes = block(&ledger, 7, one);
    assert_eq!(found(&mut ledger, owner, &bytes), Ok(()));
    let third = ledger.begin(owner, 7..8, true);
    ledger.end(owner, 7..8, third, true);
    assert!(found(&mut ledger, owner, &bytes).is_err());
    assert_eq!(found(&mut ledger, owner, &[0; BLOCK]), Ok(()));
}

#[test]
fn a_read_finds_what_was_there_when_it_began_or_came_since() {
    let mut ledger = ledger();
    let owner = ledger.take();
    let snapshot = ledger.look(7..8);
    let [one, two] = [false, true].map(|zero| {
        let version = ledger.begin(owner, 7..8, zero);
        ledger.end(owner, 7..8, version, true);
        version
    });
    let three = ledger.begin(owner, 7..8, false);
    ledger.end(owner, 7..8, three, true);
    let late = ledger.look(7..8);
    for bytes in [block(&ledger, 7, one), vec![0; BLOCK], block(&ledger, 7, three)] {
        assert_eq!(ledger.found(owner, 7, &bytes, &snapshot), Ok(()), "{two}");
        let good = bytes == block(&ledger, 7, three);
        assert_eq!(ledger.found(owner, 7, &bytes, &late).is_ok(), good);
    }
}

#[test]
fn what_a_former_owner_writes_is_never_there() {
    let mut ledger = ledger();
    let before = ledger.take();
    let owner = ledger.take();
    let stray = ledger.begin(before, 7..8, false);
    ledger.end(before, 7..8, stray, true);
    let bytes = block(&ledger, 7, stray);
    assert!(found(&mut ledger, owner, &bytes).is_err());
    assert_eq!(found(&mut ledger, owner, &[0; BLOCK]), Ok(()));
}

#[test]
fn a_medium_that_rots_is_noticed() {
    let medium = Medium::new();
    let drives = Drives::new(std::iter::once(("D1".into(), 4096, medium.clone())));
    assert_eq!(drives.check(), Ok(()));
    medium.rot(4096 * 9 + 77);
    let what = drives.check().unwrap_err().what;
    assert!(what.contains("D1") && what.contains("block 9"), "{what}");
    assert_eq!((drives.find("D1"), drives.find("D2")), (Some(0), None));
}
