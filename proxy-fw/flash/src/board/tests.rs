use super::*;
use probe_rs_target::MemoryRegion;

const QEMU_VIRT: &str = BUILT_IN[0].1;

fn wrong(from: &str, to: &str) -> String {
    assert!(QEMU_VIRT.contains(from), "{from}");
    Board::parse("board.yaml", &QEMU_VIRT.replacen(from, to, 1)).unwrap_err().to_string()
}

/// The line of the file that begins like this, from 1.
fn line(beginning: &str) -> usize {
    1 + QEMU_VIRT.lines().position(|line| line.trim_start().starts_with(beginning)).unwrap()
}

#[test]
fn the_programs_own_files_are_right() {
    for board in Board::built_in() {
        assert!(BUILT_IN.iter().any(|(name, _)| *name == format!("{}.yaml", board.name)));
        assert!(!board.keys.is_empty() && !board.chip().is_empty());
        let requirements = board.requirements(Role::Any, &board.keys, AntiDowngrade::default());
        assert_eq!(requirements.board, board.name);
    }
}

/// The firmware's constants and the board file are the same.
#[test]
fn qemu_virt_is_as_its_firmware_has_it() {
    use board_qemu_virt::layout::{BOARD, FLASH_BASE, LAYOUT, MEMORY};
    let board = Board::parse("qemu-virt.yaml", QEMU_VIRT).unwrap();
    assert_eq!((board.name, board.layout), (BOARD, LAYOUT));
    assert_eq!((board.window, board.memory), (FLASH_BASE, MEMORY));
    let public = crate::image::keys::public(include_str!("../../keys/development.pub")).unwrap();
    assert_eq!(board.keys, [TrustedKey { id: card_image::KeyId(1), key: public }]);
}

/// The same, and what the simulated card has of it.
#[test]
fn litex_is_as_its_firmware_and_the_simulated_card_have_it() {
    use board_litex::layout::{
        BOARD, BOOT_MEMORY, EUI_48, IDENTITY, LAYOUT, MEMORY, MODULE_ABSENT, REGISTERS, RETAINED,
        SHARED, WINDOW,
    };
    use sim_card::card::litex;
    let board = Board::parse("litex.yaml", BUILT_IN[1].1).unwrap();
    assert_eq!((board.name, board.layout), (BOARD, LAYOUT));
    assert_eq!((board.window, board.memory), (WINDOW, MEMORY));
    assert_eq!(board.boot_loader, BootLoader::LitexBios);
    let block = card_regs::REGISTERS.iter().find(|info| info.path == "spi.control").unwrap();
    assert_eq!(board.spi, REGISTERS as u32 + block.address);
    assert_eq!(u64::from(litex::RAM_BASE + litex::RAM_SIZE), BOOT_MEMORY.end());
    assert_eq!(
        (litex::REGISTERS_BASE, litex::WINDOW_BASE, litex::RAM_BASE),
        (REGISTERS as u32, WINDOW, MEMORY.start)
    );
    assert_eq!((litex::SHARED_BASE, litex::SHARED_SIZE), (SHARED.start, SHARED.len));
    assert_eq!(litex::PART.size, LAYOUT.parts().flash);
    assert_eq!((litex::IDENTITY, u16::from(litex::EUI_48)), (IDENTITY, EUI_48));
    assert_eq!(litex::MODULE_ABSENT, MODULE_ABSENT);
    // The algorithm has its code, stack and pages where memory works before the BIOS runs, and leaves
    // alone what outlasts a reset.
    let place = board.algorithm().load_address.unwrap();
    let memories =
        board.target.variants[0].memory_map.iter().filter_map(MemoryRegion::as_ram_region);
    let of_algorithm = memories.map(|ram| ram.range.clone()).find(|range| range.contains(&place));
    assert_eq!(of_algorithm, Some(SHARED.start.into()..RETAINED.into()));
    let jtag = board.target.variants[0].jtag.as_ref().unwrap();
    let tunnel = jtag.riscv_tunnel.as_ref().unwrap();
    assert_eq!(
        (board.idcode, tunnel.ir_id, tunnel.ir_width),
        (litex::IDCODE, litex::TUNNEL.instruction, litex::TUNNEL.ir_width)
    );
}

/// What is found on a chain tells which it is.
#[test]
fn no_two_boards_have_an_idcode() {
    let boards = Board::built_in();
    for (number, board) in boards.iter().enumerate() {
        assert!(
            boards[..number].iter().all(|other| other.idcode != board.idcode),
            "{}",
            board.name
        );
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (from, to, at, words) in [
        ("board: qemu-virt", "board: QEMU", line("board:"), "small letters"),
        ("idcode: 0x1dc5dffd", "idcode: 2", line("idcode:"), "lowest bit"),
        ("clock_khz: 10000", "clock_khz: 0", line("clock_khz:"), "never ticks"),
        ("spi: 0x10010000", "spi: 0x10010001", line("spi:"), "multiple of 4"),
        ("progress: 0x40000", "progress: 1", line("progress:"), "unit of progress"),
        ("slot_b: { start: 0x240000", "slot_b: { start: 0x200000", line("slot_b:"), "overlap"),
        ("number: 1", "number: 0", line("- { number: 1"), "not 0"),
        ("public: eaa2", "public: ea", line("- { number: 1"), "62 digits"),
        (
            "    - { number: 1,",
            "    - { number: 1, public: b871f4b37f87a9351f480bd9a4ced30d0aeff3c1a30d6a65d6fdb4a56d1ee2e4 }\n    - { number: 1,",
            line("keys:"),
            "two keys have the number 0x00000001",
        ),
        ("type: riscv", "type: xtensa", line("type:"), "`riscv`"),
        ("page_size: 0x100", "page_size: 0x200", line("page_size:"), "256"),
        (
            "data_section_offset: 0x0",
            "data_section_offset: 0xffffffffffffffff",
            line("instructions:"),
            "shorter than where its functions are",
        ),
        ("end: 0x80800000", "end: 0x80000080", line("load_address:"), "loaded to memory"),
        ("length: 0x780000", "length: lots", line("memory:"), "invalid type"),
        ("  window: 0x20000000\n", "", 1, "missing field `window`"),
    ] {
        let told = wrong(from, to);
        let place = format!("board.yaml:{at}: ");
        let line_is_right = told.starts_with(&place) || words.contains("missing field");
        assert!(line_is_right && told.contains(words), "{place} {words}\n{told}");
    }
}

/// A core behind an FPGA's own TAP, one of two on the chain.
#[test]
fn a_tunnel_through_an_fpga_is_taken() {
    let text = QEMU_VIRT.replace(
        "        scan_chain: [{ name: main, ir_len: 5 }]\n",
        "        scan_chain: [{ name: bridge, ir_len: 4 }, { name: fpga, ir_len: 6 }]\n\
         \x20       riscv_tunnel: { ir_id: 0x22, ir_width: 5 }\n",
    );
    let text = text.replace("!Riscv {}", "!Riscv { jtag_tap: 1 }");
    let board = Board::parse("board.yaml", &text).unwrap();
    let jtag = board.target.variants[0].jtag.as_ref().unwrap();
    assert_eq!(jtag.scan_chain.as_ref().unwrap().len(), 2);
    assert_eq!(
        jtag.riscv_tunnel.as_ref().map(|tunnel| (tunnel.ir_id, tunnel.ir_width)),
        Some((0x22, 5))
    );
    let told = Board::parse("b", &text.replace("ir_id: 0x22", "ir_id: 0x40")).unwrap_err();
    let at = 1 + text.lines().position(|line| line.contains("riscv_tunnel")).unwrap();
    let words = "register has 6 bits: 0x40 does not fit";
    assert!(told.place.line() == Some(at) && told.what.ends_with(words), "{told}");
}

mod any_text {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Damage of any kind is an error, and never a panic.
        #[test]
        fn is_a_board_or_not(at in 0..QEMU_VIRT.len(), length in 0_usize..40, put in "[ -~\\n]{0,12}") {
            let end = (at + length).min(QEMU_VIRT.len());
            let text = format!("{}{put}{}", &QEMU_VIRT[..at], &QEMU_VIRT[end..]);
            if let Err(error) = Board::parse("b", &text) {
                prop_assert!(error.to_string().starts_with("b"));
            }
        }
    }
}
