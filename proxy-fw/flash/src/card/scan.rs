//! Who is on the JTAG chain, and which board that is.

use probe_rs::probe::{DebugProbeError, Probe};
use probe_rs_target::ScanChainElement;

use super::{Candidates, lost};
use crate::board::Board;
use crate::failure::{Failure, Kind, Outcome};
use crate::probe::{ProbeName, told};

/// A test access port on the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Its IDCODE, when it has one.
    pub idcode: Option<u32>,
    /// Bits of its instruction register.
    pub ir_length: u8,
}

/// Asks who is on the chain. A probe that does not tell gives nothing.
///
/// # Errors
///
/// When nobody answers, or not in a way that makes sense.
pub fn scan(name: &ProbeName, probe: &mut Probe, candidates: &Candidates) -> Outcome<Vec<Tap>> {
    let elements = match &candidates.boards[..] {
        [only] => chain_of(only),
        _ => Vec::new(),
    };
    let is_forced = matches!(&candidates.boards[..], [only] if only.forces_scan_chain());
    let Some(jtag) = probe.try_as_jtag_probe() else { return Ok(Vec::new()) };
    // The chain of a board whose TAP does not answer a scan.
    if is_forced {
        jtag.set_scan_chain(&elements).map_err(|error| silent(name, &error))?;
        return Ok(Vec::new());
    }
    // Not every chain says itself where a register ends: the board's file does.
    if !elements.is_empty() {
        jtag.set_expected_scan_chain(&elements).map_err(|error| silent(name, &error))?;
    }
    probe.attach_to_unspecified().map_err(|error| match is_other_chain(&error) {
        true => other_chain(name, &elements),
        false => unanswered(name, error),
    })?;
    let Some(jtag) = probe.try_as_jtag_probe() else { return Ok(Vec::new()) };
    let chain = jtag.scan_chain().map_err(|error| silent(name, &error))?;
    Ok(chain
        .iter()
        .map(|tap| Tap { idcode: tap.name.as_deref().and_then(idcode), ir_length: tap.ir_len() })
        .collect())
}

/// The TAPs of a board's chain.
fn chain_of(board: &Board) -> Vec<ScanChainElement> {
    let jtag = board.target.variants[0].jtag.as_ref();
    jtag.and_then(|jtag| jtag.scan_chain.clone()).unwrap_or_default()
}

/// TAPs, as a person is told.
fn lengths(elements: &[ScanChainElement]) -> String {
    let length =
        |tap: &ScanChainElement| tap.ir_len.map_or("?".to_owned(), |bits| bits.to_string());
    let lengths: Vec<String> = elements.iter().map(length).collect();
    match &lengths[..] {
        [only] => format!("one TAP with an instruction register of {only} bits"),
        all => format!("{} TAPs with instruction registers of {} bits", all.len(), all.join(", ")),
    }
}

/// Whether the chain is as the board's file has it, also where who is on it was asked before it was
/// known which board that is.
///
/// # Errors
///
/// How the board's file has it.
pub(super) fn check_chain(name: &ProbeName, board: &Board, taps: &[Tap]) -> Outcome<()> {
    let elements = chain_of(board);
    if taps.is_empty() || elements.is_empty() {
        return Ok(());
    }
    let alike = |(element, tap): (&ScanChainElement, &Tap)| {
        element.ir_len.is_none_or(|bits| bits == tap.ir_length)
    };
    let same = elements.len() == taps.len() && elements.iter().zip(taps).all(alike);
    same.then_some(()).ok_or_else(|| other_chain(name, &elements))
}

/// Whether the core's TAP is where the board's file has it: what is said to another one is answered
/// with nothing that makes sense.
///
/// # Errors
///
/// Who is there instead.
pub(super) fn check_place(board: &Board, taps: &[Tap]) -> Outcome<()> {
    if taps.is_empty() {
        return Ok(());
    }
    let place = board.jtag_tap();
    match taps.get(place) {
        Some(tap) if tap.idcode.is_none_or(|idcode| idcode == board.idcode) => Ok(()),
        tap => {
            let there = tap.and_then(|tap| tap.idcode);
            let there = there.map_or("none".to_owned(), |idcode| format!("{idcode:#010x}"));
            let what = format!(
                "the core's TAP is not at place {place} of the JTAG chain, where the file of the board {} \
                 has it: the IDCODE there is {there}",
                board.name
            );
            Err(Failure::new(Kind::Card, what)
                .check("correct `jtag_tap` or `scan_chain` in the board file (docs/boards.md)"))
        }
    }
}

/// probe-rs names a TAP that it has found by its IDCODE, with its maker behind it.
fn idcode(name: &str) -> Option<u32> {
    let digits = name.split_whitespace().next()?.strip_prefix("0x")?;
    u32::from_str_radix(digits, 16).ok()
}

fn unanswered(name: &ProbeName, error: probe_rs::Error) -> Failure {
    match error {
        probe_rs::Error::Probe(error) => silent(name, &error),
        error => lost(name, "the probe cannot attach", &error),
    }
}

/// Whether TAPs answer, whose instruction registers are not as they should be or as nobody can tell.
fn is_other_chain(error: &probe_rs::Error) -> bool {
    match error {
        probe_rs::Error::Probe(error @ DebugProbeError::JtagScanChain(_)) => {
            told(error).contains("Invalid IR")
        }
        _ => false,
    }
}

fn other_chain(name: &ProbeName, elements: &[ScanChainElement]) -> Failure {
    let failure = match elements.is_empty() {
        true => {
            let what = format!(
                "TAPs answer at the probe {name}, but where their instruction registers end cannot be told"
            );
            Failure::new(Kind::Card, what)
                .check("name the board (--board or --board-file), so that its JTAG chain is known")
        }
        false => {
            let what = format!(
                "TAPs answer at the probe {name}, but not as the board's file has the JTAG chain: {}",
                lengths(elements)
            );
            Failure::new(Kind::Card, what)
                .checks(&[
                    "is the probe at the card that is meant, and is that the board that is named, with --board, \
                     --board-file, DXPU_BOARD or DXPU_BOARD_FILE? `dxpu-flash list` names it without",
                ])
                .check(
                "if more than that is on the chain, give a board file with all of it in `scan_chain`, \
                 what is at TDO first (docs/boards.md)",
            )
        }
    };
    failure.check("if the cable is long or noisy, try a slower clock: --clock 100")
}

/// What it means that the chain does not answer.
fn silent(name: &ProbeName, error: &DebugProbeError) -> Failure {
    // probe-rs stumbles over a chain of which it has read nothing but zeros.
    let nobody =
        matches!(error, DebugProbeError::TargetNotFound | DebugProbeError::JtagScanChain(_))
            || told(error).contains("IR bits: 0");
    match name {
        _ if nobody => {
            let what = format!(
                "no card answers at the probe {name} (its JTAG chain is empty or not readable)"
            );
            Failure::new(Kind::Card, what).checks(&[
                "has the card power? Its JTAG is dead without",
                "is the JTAG cable at the right header, pin 1 to pin 1, and TDI and TDO not swapped?",
                "try a slower clock: --clock 100",
                "if more than the card is on the chain, name the board (--board) so that its chain is known",
            ])
        }
        ProbeName::Remote(address) => {
            let what = format!("the probe at {address} does not work: {}", told(error));
            Failure::new(Kind::Probe, what).checks(&[
                "does another program hold its one connection: OpenOCD, another dxpu-flash?",
                "is it a remote-bitbang port? `dxpu-sim-card` prints its address",
            ])
        }
        ProbeName::Usb(_) => {
            let what = format!("the probe {name} does not work: {}", told(error));
            Failure::new(Kind::Probe, what).check("unplug it and plug it in again")
        }
    }
}

/// Which of the boards is on the chain.
pub(super) fn choose(name: &ProbeName, candidates: &Candidates, taps: &[Tap]) -> Outcome<Board> {
    let boards = &candidates.boards;
    if taps.is_empty() {
        // The probe or the board does not tell; what a person says is believed.
        return match &boards[..] {
            [only] if candidates.named => Ok(only.clone()),
            _ => Err(Failure::new(
                Kind::Input,
                format!("the probe {name} does not tell who is on the chain"),
            )
            .check("say which board it is with --board or --board-file")),
        };
    }
    let there = |board: &&Board| taps.iter().any(|tap| tap.idcode == Some(board.idcode));
    let mut found = boards.iter().filter(there);
    match (found.next(), found.next()) {
        (Some(board), None) => Ok(board.clone()),
        (Some(_), Some(_)) => {
            let names: Vec<&str> =
                boards.iter().filter(there).map(|board| board.name.as_str()).collect();
            let what = format!("the card may be one of the boards {}", names.join(", "));
            Err(Failure::new(Kind::Input, what).check("say which one with --board"))
        }
        (None, _) => Err(another(candidates, taps)),
    }
}

fn another(candidates: &Candidates, taps: &[Tap]) -> Failure {
    let shown: Vec<String> = taps
        .iter()
        .map(|tap| tap.idcode.map_or("none".to_owned(), |idcode| format!("{idcode:#010x}")))
        .collect();
    let shown = shown.join(", ");
    match &candidates.boards[..] {
        [only] if candidates.named => {
            let what = format!(
                "this is no {}: its IDCODE is {:#010x}, on the chain is {shown}",
                only.name, only.idcode
            );
            Failure::new(Kind::Card, what).checks(&[
                "is the probe at the card that is meant?",
                "is it another kind of card? `dxpu-flash list` names it without --board",
            ])
        }
        boards => {
            let what = format!("no board with the IDCODE {shown} is known");
            let known: Vec<String> = boards
                .iter()
                .map(|board| format!("{} ({:#010x})", board.name, board.idcode))
                .collect();
            Failure::new(Kind::Card, what)
                .check(format!("known are {}", known.join(", ")))
                .check("for another board give its file with --board-file (docs/boards.md)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> ProbeName {
        "1:2".parse().unwrap()
    }

    /// Boards with these names and IDCODEs.
    fn candidates(boards: &[(&str, u32)], named: bool) -> Candidates {
        let board = |(name, idcode): &(&str, u32)| Board {
            name: card_image::BoardName::new(name).unwrap(),
            idcode: *idcode,
            ..Board::built_in().remove(0)
        };
        Candidates { boards: boards.iter().map(board).collect(), named }
    }

    fn taps(idcodes: &[Option<u32>]) -> Vec<Tap> {
        idcodes.iter().map(|idcode| Tap { idcode: *idcode, ir_length: 5 }).collect()
    }

    #[test]
    fn the_board_is_found_by_its_idcode() {
        let three = candidates(&[("a", 11), ("b", 13), ("c", 13)], false);
        let chosen = |idcodes: &[Option<u32>]| choose(&probe(), &three, &taps(idcodes));
        // Also among others on the chain.
        assert_eq!(chosen(&[None, Some(7), Some(11)]).unwrap().name.as_str(), "a");
        let either = chosen(&[Some(13)]).unwrap_err();
        assert_eq!((either.kind, either.check.len()), (Kind::Input, 1));
        assert!(either.what.ends_with("b, c"), "{either}");
        let unknown = chosen(&[Some(17)]).unwrap_err();
        assert_eq!(unknown.kind, Kind::Card);
        assert!(unknown.check[0].contains("a (0x0000000b)"), "{unknown:?}");
    }

    #[test]
    fn who_is_named_is_believed_where_nothing_tells() {
        let named = candidates(&[("a", 11)], true);
        assert_eq!(choose(&probe(), &named, &[]).unwrap().name.as_str(), "a");
        let other = choose(&probe(), &named, &taps(&[Some(13)])).unwrap_err();
        assert!(other.what.contains("this is no a"), "{other}");
        let not_named = candidates(&[("a", 11)], false);
        assert_eq!(choose(&probe(), &not_named, &[]).unwrap_err().kind, Kind::Input);
    }

    #[test]
    fn a_chain_that_is_another_than_the_boards_is_told() {
        let board = Board::built_in().remove(0);
        let bits =
            chain_of(&board).iter().map(|element| element.ir_len.unwrap()).collect::<Vec<_>>();
        let taps = |bits: &[u8]| -> Vec<Tap> {
            bits.iter().map(|ir_length| Tap { idcode: None, ir_length: *ir_length }).collect()
        };
        check_chain(&probe(), &board, &taps(&bits)).unwrap();
        check_chain(&probe(), &board, &[]).unwrap();
        for other in [&[2, bits[0]][..], &[bits[0] + 1]] {
            let failure = check_chain(&probe(), &board, &taps(other)).unwrap_err();
            assert!(failure.what.contains("not as the board's file has"), "{failure}");
        }
    }

    #[test]
    fn idcodes_are_read_from_names() {
        assert_eq!(idcode("0x1DC5DFFD (somebody)"), Some(0x1dc5_dffd));
        assert_eq!(
            (idcode("0x13631093"), idcode("main"), idcode("")),
            (Some(0x1363_1093), None, None)
        );
    }
}
