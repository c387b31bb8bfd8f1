//! Cards whose processor is behind the JTAG port of an FPGA.

use sim_card::Card;
use sim_card::debug::{Place, TunnelParts};

use crate::sim::{Bench, SimCard, board, cells, label};

/// As of an FPGA of AMD's 7 series, with the processor at USER4.
const FPGA: TunnelParts = TunnelParts { ir_length: 6, instruction: 0x23, ir_width: 5 };

/// The program's own board file says nothing of a tunnel.
const ALONE: &str = "        scan_chain: [{ name: main, ir_len: 5 }]\n";

/// A board file of the FPGA; of the chain what else is on it, what is at TDO last.
fn file(bench: &Bench, tunnel: TunnelParts, more: &str) -> String {
    let TunnelParts { ir_length, instruction, ir_width } = tunnel;
    let said = format!(
        "        scan_chain: [{{ name: fpga, ir_len: {ir_length} }}{more}]\n        \
         riscv_tunnel: {{ ir_id: {instruction:#x}, ir_width: {ir_width} }}\n"
    );
    bench.board_file_with(&[(ALONE, &said)])
}

#[test]
fn a_card_is_flashed_and_read_through_an_fpga() {
    let others = TunnelParts { ir_length: 8, instruction: 0x32, ir_width: 6 };
    for (fpga, bridge) in [(FPGA, None), (others, None), (FPGA, Some(4))] {
        let bench = Bench::new();
        let image = bench.image("small.img", &label("1.0.0"), 3000);
        let more =
            bridge.map_or(String::new(), |bits| format!(", {{ name: bridge, ir_len: {bits} }}"));
        let file = file(&bench, fpga, &more);
        let mut card = Card::new().with_tunnel(fpga);
        if let Some(bits) = bridge {
            card = card.with_tap(Place::Before, bits);
        }
        let card = SimCard::start(card);
        let run = |arguments: &[&str]| {
            bench.run(Some(card.address), &[&["--board-file", &file], arguments].concat())
        };
        let info = run(&["info", "--json"]).fine().json();
        // The IDCODE is the FPGA's, which is all of the card that a scan shows.
        assert_eq!(info["idcodes"][0], board().idcode);
        assert_eq!(info["flash_id"], "894019");
        run(&["write", "small.img"]).fine();
        run(&["verify", "small.img"]).fine();
        run(&["config", "set", "name=far", "manager=10.0.0.1:7781"]).fine();
        let settings = run(&["config", "get", "--json"]).fine().json();
        assert_eq!(settings["settings"]["name"], "far", "{settings}");
        run(&["reset"]).fine();
        let start = board().layout.slots()[0].start;
        assert_eq!(cells(&mut card.stop(), start, image.len()), image);
    }
}

/// The FPGA's port answers also when there is nothing behind it: it is not configured, or with something
/// else than the board file is for.
#[test]
fn an_fpga_without_the_processor_is_told() {
    let bench = Bench::new();
    for there in [
        // The processor is at another instruction than the file has it.
        TunnelParts { instruction: 0x22, ..FPGA },
        // Another length of instructions: what is selected is none of the debug transport's.
        TunnelParts { ir_width: 7, ..FPGA },
    ] {
        let file = file(&bench, FPGA, "");
        let card = SimCard::start(Card::new().with_tunnel(there));
        let said = bench.run(Some(card.address), &["--board-file", &file, "info"]);
        for check in ["`riscv_tunnel` in the board file: is 0x23 the", "is the FPGA configured,"] {
            assert!(said.error.contains(check), "{}", said.error);
        }
        said.failed(4, "answers, its debug module does not");
        assert_eq!(card.stop().board.nor(0).steps(), 0, "the flash was left alone");
    }
    // The file says nothing of a tunnel.
    let without = bench.board_file(ALONE, &ALONE.replace("ir_len: 5", "ir_len: 6"));
    let card = SimCard::start(Card::new().with_tunnel(FPGA));
    for command in [&["info"][..], &["list"], &["erase", "config"]] {
        let said = bench.run(Some(card.address), &[&["--board-file", &without], command].concat());
        said.failed(4, "the board file has no `riscv_tunnel`");
    }
    // A card with its processor's own port, of which the file says that it is an FPGA's.
    let card = SimCard::start(Card::new());
    let said = bench.run(Some(card.address), &["--board-file", &file(&bench, FPGA, ""), "info"]);
    said.failed(4, "but not as the board's file has the JTAG chain");
}
