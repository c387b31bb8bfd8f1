//! Cards that are not alone on their JTAG chain.

use sim_card::Card;
use sim_card::debug::Place;

use crate::sim::{Bench, SimCard, board, cells, label};

/// The chain of the program's own board file.
const ALONE: &str = "scan_chain: [{ name: main, ir_len: 5 }]";

/// A bridge of 6 bits before the card's TAP: what is at TDO comes first.
const BEFORE: (&str, &str) =
    (ALONE, "scan_chain: [{ name: main, ir_len: 5 }, { name: bridge, ir_len: 6 }]");

/// One behind it, of which the scan alone would take the first 4 bits for all.
const AFTER: (&str, &str) =
    (ALONE, "scan_chain: [{ name: bridge, ir_len: 6 }, { name: main, ir_len: 5 }]");

/// The core's TAP is the second.
const SECOND: (&str, &str) = ("!Riscv {}", "!Riscv { jtag_tap: 1 }");

fn card(place: Place) -> SimCard {
    SimCard::start(Card::new().with_tap(place, 6))
}

#[test]
fn a_card_is_flashed_through_a_chain() {
    for (place, changes) in [(Place::Before, &[BEFORE][..]), (Place::After, &[AFTER, SECOND])] {
        let bench = Bench::new();
        let image = bench.image("small.img", &label("1.0.0"), 3000);
        let file = bench.board_file_with(changes);
        let card = card(place);
        let run = |arguments: &[&str]| {
            bench.run(Some(card.address), &[&["--board-file", &file], arguments].concat())
        };
        let info = run(&["info", "--json"]).fine().json();
        let mut idcodes = [board().idcode, place.idcode()];
        if place == Place::After {
            idcodes.reverse();
        }
        assert_eq!(info["idcodes"], serde_json::json!(idcodes));
        assert_eq!(info["flash_id"], "894019");
        run(&["write", "small.img"]).fine();
        run(&["verify", "small.img"]).fine();
        let start = board().layout.slots()[0].start;
        assert_eq!(cells(&mut card.stop(), start, image.len()), image);
    }
}

/// What would be said to a TAP that it is not for is told before.
#[test]
fn another_chain_than_the_board_files_is_told() {
    let bench = Bench::new();
    // FPGAs show their state where a register could begin: a file that says nothing does not do.
    let unsaid = &[(ALONE, "scan_chain: []")];
    for (place, changes, words) in [
        (Place::Before, &unsaid[..], "where their instruction registers end cannot be told"),
        (Place::Before, &[], "but not as the board's file has the JTAG chain: one TAP with"),
        (Place::After, &[BEFORE], "but not as the board's file has the JTAG chain: 2 TAPs with"),
        (Place::Before, &[BEFORE, SECOND], "the core's TAP is not at place 1 of the JTAG chain"),
        (Place::After, &[AFTER], "the core's TAP is not at place 0 of the JTAG chain"),
    ] {
        let file = bench.board_file_with(changes);
        let card = card(place);
        let said = bench.run(Some(card.address), &["--board-file", &file, "info"]);
        said.failed(4, words);
        assert_eq!(card.stop().board.nor(0).steps(), 0, "the flash was left alone");
    }
    // A card alone, of which the file says that it is not.
    let file = bench.board_file_with(&[BEFORE]);
    let alone = SimCard::start(Card::new());
    let said = bench.run(Some(alone.address), &["--board-file", &file, "info"]);
    said.failed(4, "but not as the board's file has the JTAG chain: 2 TAPs with");
}
