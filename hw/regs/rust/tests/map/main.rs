//! The accessors, the fields and the table of registers against `hw/regs/card.json`: the addresses
//! and bits that the reference compiler of SystemRDL gives.

/// The bits of a field: those that setting it to ones sets. All that the field's getter and setter
/// do is compared with them.
macro_rules! bits_of {
    ($path:expr, $holds:ty, $get:ident, $with:ident, $zeros:expr, $ones:expr) => {{
        let holds = <$holds>::from_bits;
        let bits = holds(0).$with($ones).bits();
        assert_eq!(holds(u32::MAX).$with($zeros).bits(), !bits, "{} set to zeros", $path);
        assert_eq!((holds(bits).$get(), holds(!bits).$get()), ($ones, $zeros), "{}", $path);
        ($path, bits)
    }};
}

mod accessors;
mod fields;

use std::collections::BTreeMap;

use card_regs::{Bus, Card, REGISTERS, card};

/// No access is made.
#[derive(Clone, Copy)]
struct Nothing;

impl Bus for Nothing {
    fn read32(&self, offset: u32) -> u32 {
        panic!("nothing is read at {offset:#x}");
    }

    fn write32(&self, offset: u32, value: u32) {
        panic!("nothing is written at {offset:#x}, not even {value:#x}");
    }
}

fn json() -> serde_json::Value {
    serde_json::from_str(include_str!("../../../card.json")).unwrap()
}

fn number(value: &serde_json::Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// Paths of the registers that are at addresses, and the compiler's address of each.
fn compiled() -> BTreeMap<String, u32> {
    json()["registers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|register| register["map"] == "card")
        .map(|register| {
            (register["path"].as_str().unwrap().to_owned(), number(&register["address"]))
        })
        .collect()
}

fn owned(pairs: impl IntoIterator<Item = (&'static str, u32)>) -> BTreeMap<String, u32> {
    pairs.into_iter().map(|(path, address)| (path.to_owned(), address)).collect()
}

#[test]
fn every_accessor_is_where_the_compiler_says() {
    let ours = accessors::addresses(Card::at(Nothing, 0));
    assert_eq!(owned(ours), compiled());
}

#[test]
fn accessors_count_from_where_the_card_is() {
    let moved: Vec<_> = accessors::addresses(Card::at(Nothing, 0x1000_0000))
        .into_iter()
        .map(|(path, address)| (path, address - 0x1000_0000))
        .collect();
    assert_eq!(owned(moved), compiled());
}

#[test]
fn the_table_has_them_all() {
    let table = REGISTERS.map(|register| (register.path, register.address));
    assert_eq!(owned(table), compiled());
    assert!(table.is_sorted_by_key(|(_, address)| *address));
    assert!(table.iter().all(|(_, address)| address + 4 <= card::SIZE));
}

#[test]
fn every_field_has_the_bits_that_the_compiler_says() {
    let mut compiled = BTreeMap::new();
    for kind in json()["types"].as_array().unwrap() {
        for item in kind["items"].as_array().unwrap() {
            for field in item["fields"].as_array().into_iter().flatten() {
                let [block, register, name] = [kind, item, field].map(|named| &named["name"]);
                let path = [block, register, name].map(|name| name.as_str().unwrap()).join(".");
                let bits = (number(&field["low"])..=number(&field["high"])).map(|bit| 1 << bit);
                compiled.insert(path, bits.sum::<u32>());
            }
        }
    }
    assert_eq!(owned(fields::fields()), compiled);
}
