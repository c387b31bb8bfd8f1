//! Any bytes as a store.

use super::*;
use crate::records::{self, Records};
use crate::types::{HoldKind, HoldRecord, Place, Timestamp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

/// Nothing that ends takes that long.
const HANGS: Duration = Duration::from_secs(60);

/// What redb begins a file with.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// One that was closed, and one whose manager was killed. Tables are more than one page.
static STORES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let store = Arc::new(EmbeddedStore::open(&path).unwrap());
    drop(Records::open(store.clone(), &path).unwrap());
    let held = |number: u32| {
        let place: Place = format!("box{number}").parse().unwrap();
        let key = place.to_string().into_bytes();
        let record = HoldRecord {
            place,
            kind: HoldKind::Drained,
            reason: "it is moved to another rack".into(),
            since: Timestamp::now(),
            operation: None,
        };
        Change { table: Table::Holds, key, value: Some(serde_json::to_vec(&record).unwrap()) }
    };
    for first in [0, 100] {
        store.commit(&(first..first + 100).map(held).collect::<Vec<_>>()).unwrap();
    }
    let killed = fs::read(&path).unwrap();
    drop(store);
    [fs::read(&path).unwrap(), killed]
});

/// Something that happens to a file. Places are parts of what has some use, in 65536ths.
#[derive(Clone, Debug)]
enum Harm {
    Flip(u16, u8),
    Fill(u16, u8, usize),
    /// What stands at one place comes to another: numbers of pages, lengths, checksums.
    Copy(u16, u16, usize),
    Header(usize, u8),
    Cut(u16),
    Grow(usize),
}

impl Harm {
    fn any() -> impl Strategy<Value = Self> {
        let flip = (any::<u16>(), any::<u8>()).prop_map(|(at, bit)| Self::Flip(at, bit));
        let fill = (any::<u16>(), any::<u8>(), 1_usize..600);
        let copy = (any::<u16>(), any::<u16>(), prop_oneof![Just(8_usize), 1_usize..5000]);
        let header = (0_usize..320, any::<u8>()).prop_map(|(at, byte)| Self::Header(at, byte));
        prop_oneof![
            3 => flip,
            2 => fill.prop_map(|(at, byte, size)| Self::Fill(at, byte, size)),
            3 => copy.prop_map(|(from, to, size)| Self::Copy(from, to, size)),
            3 => header,
            1 => any::<u16>().prop_map(Self::Cut),
            1 => (1_usize..100_000).prop_map(Self::Grow),
        ]
    }

    fn happen(&self, bytes: &mut Vec<u8>) {
        let used: Vec<usize> = (0..bytes.len().div_ceil(8))
            .filter(|word| bytes[8 * word..].iter().take(8).any(|byte| *byte != 0))
            .collect();
        let at =
            |place: u16| used.get((usize::from(place) * used.len()) >> 16).map_or(0, |at| 8 * at);
        let until = |at: usize, size: usize| (at + size).min(bytes.len());
        match *self {
            Self::Flip(place, bit) => {
                let place = at(place) + usize::from(bit >> 3 & 7);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << (bit & 7);
                }
            }
            Self::Fill(place, with, size) => {
                let (from, to) = (at(place), until(at(place), size));
                bytes[from..to].fill(with);
            }
            Self::Copy(from, to, size) => {
                let (from, to) = (at(from), at(to));
                let size = size.min(bytes.len() - from.max(to));
                bytes.copy_within(from..from + size, to);
            }
            Self::Header(place, byte) => {
                if let Some(there) = bytes.get_mut(place) {
                    *there = byte;
                }
            }
            Self::Cut(place) => bytes.truncate(at(place)),
            Self::Grow(size) => bytes.resize(bytes.len() + size, 0xff),
        }
    }
}

/// No store at all, or the beginning of one.
fn foreign() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), prop::collection::vec(any::<u8>(), 0..9000)).prop_map(|(magic, bytes)| {
        let begins = if magic { MAGIC } else { &[] };
        [begins, &bytes].concat()
    })
}

/// Checks in a thread of its own; its panic, or that it does not come to an end, is ours.
fn bounded(path: &Path, repair: bool) -> Result<Report, StoreError> {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || drop(tell.send(check(&path, repair))));
    told.recv_timeout(HANGS).expect("a check ends, and does not panic")
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

/// What holds whatever a store's file is.
fn holds(bytes: &[u8], repair: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    fs::write(&path, bytes).unwrap();
    let checked = bounded(&path, repair);
    let mut left = files(folder.path());
    let store = left.remove("store.redb").expect("there is always a store");
    let report = match checked {
        Ok(report) => report,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("store.redb") && !text.contains(".checking"), "{text}");
            assert!(!matches!(error, StoreError::Io { .. } | StoreError::Locked(_)), "{text}");
            assert!(store == bytes && left.is_empty(), "{text}: {left:?}");
            return;
        }
    };
    assert!(report.damaged.iter().all(|damage| !damage.reason.is_empty()), "{report:?}");
    assert!(!report.is_good() || report.repaired.is_some() || report.whole, "{report:?}");
    if let Some(repaired) = &report.repaired {
        assert!(fs::read(&repaired.kept).unwrap() == bytes, "it is kept as it was");
        assert!(repaired.taken_out.exists() && left.len() == 2, "{:?}", left.keys());
        let again = bounded(&path, false).unwrap();
        assert!(again.is_good() && again.damaged.is_empty(), "{report:?} {again:?}");
    } else {
        assert!(store == bytes && left.is_empty(), "{:?}", left.keys());
        assert!(!repair || report.is_good() || !report.is_repairable(), "{report:?}");
    }
    if report.is_good() {
        // A manager starts on it.
        records::check(&path).unwrap();
    }
}

#[test]
fn stores_without_harm_are_good() {
    for store in STORES.iter() {
        holds(store, true);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        fs::write(&path, store).unwrap();
        let report = check(&path, false).unwrap();
        assert!(report.is_good() && report.records > 200, "{report:?}");
    }
}

/// Each looks at a file several times: fewer than usual.
fn few() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: (usual.cases / 5).max(1), max_shrink_iters: 100, ..usual }
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn a_damaged_store_has_a_reason_and_ends(
        killed in any::<bool>(),
        harms in prop::collection::vec(Harm::any(), 1..5),
        repair in any::<bool>(),
    ) {
        let mut bytes = STORES[usize::from(killed)].clone();
        harms.iter().for_each(|harm| harm.happen(&mut bytes));
        holds(&bytes, repair);
    }

    #[test]
    fn what_is_no_store_has_a_reason_and_ends(bytes in foreign(), repair in any::<bool>()) {
        holds(&bytes, repair);
    }
}
