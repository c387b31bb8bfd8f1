//! OpenOCD as the judge of port, debug module and protocol.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sim_card::Card;
use sim_card::bitbang::Server;
use sim_card::card::RAM_BASE;
use sim_card::debug::{Place, TunnelParts};

/// IDCODE of the card.
const IDCODE: u32 = 0x1dc5_dffd;

/// Counts in x1 from 1 on, in a loop of three instructions.
const PROGRAM: [u32; 4] = [0x0000_0093, 0x0010_8093, 0x0000_0013, 0xff9f_f06f];

fn card() -> Card {
    let mut card = Card::new();
    let bytes: Vec<u8> = PROGRAM.iter().flat_map(|word| word.to_le_bytes()).collect();
    card.load(RAM_BASE, &bytes).expect("it fits");
    card.hart.set_pc(RAM_BASE);
    card
}

/// Runs OpenOCD with these commands after `init` and gives what it said; `None` where there is
/// none.
fn openocd(commands: &str) -> Option<String> {
    openocd_at(card(), "jtag newtap card cpu -irlen 5", "", commands)
}

/// The same for a card that is on a chain with others, which are declared: what is at TDO first; and with
/// what is to be said of the target before `init`.
fn openocd_at(mut card: Card, chain: &str, target: &str, commands: &str) -> Option<String> {
    if Command::new("openocd").arg("--version").stderr(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED: there is no openocd here (Debian: apt-get install openocd)");
        return None;
    }
    let mut server = Server::bind("127.0.0.1:0").expect("there is a free port");
    let port = server.address().port();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let life = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            card.run(1000);
            server.poll(&mut card, Duration::from_millis(1));
        }
    });
    // What a command says is its result, in a script.
    let told: Vec<String> =
        commands.split(';').map(|command| format!("echo [{}]", command.trim())).collect();
    let commands = told.join("; ");
    let script = format!(
        "adapter driver remote_bitbang; remote_bitbang host 127.0.0.1; \
         remote_bitbang port {port}; gdb_port disabled; tcl_port disabled; \
         telnet_port disabled; {chain}; \
         target create card.cpu riscv -chain-position card.cpu; {target} init; {commands}; shutdown"
    );
    let output = Command::new("timeout")
        .args(["120", "openocd", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .expect("openocd was there");
    stop.store(true, Ordering::Relaxed);
    life.join().expect("the card lives");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "openocd failed: {said}");
    Some(said)
}

fn says(said: &str, all: &[&str]) {
    for wanted in all {
        assert!(said.contains(wanted), "openocd did not say {wanted:?}");
    }
}

fn complains_of_nothing(said: &str) {
    for complaint in ["UNEXPECTED", "Error:", "trouble"] {
        assert!(!said.contains(complaint), "openocd said {complaint}");
    }
}

#[test]
fn it_examines_halts_steps_and_reads() {
    let Some(said) = openocd(
        "halt; reg pc 0x80000000; step; reg pc; reg ra 41; step; reg ra; mdw 0x80000000 4; \
         mww 0x80000100 0xcafef00d; mwb 0x80000101 0x5a; mdw 0x80000100; reg misa; resume",
    ) else {
        return;
    };
    says(
        &said,
        &[
            "datacount=2 progbufsize=8",
            "XLEN=32, misa=0x40001105",
            "pc (/32): 0x80000004",
            "ra (/32): 0x0000002a",
            "0x80000000: 00000093 00108093 00000013 ff9ff06f",
            "0x80000100: cafe5a0d",
        ],
    );
}

#[test]
fn the_ports_before_and_after_the_cards_own_are_on_the_chain() {
    let chain = format!(
        "jtag newtap after tap -irlen 4 -ircapture 0x5 -irmask 0xf -expected-id {:#x}; \
         jtag newtap card cpu -irlen 5; \
         jtag newtap before tap -irlen 6 -ircapture 0x15 -irmask 0x3f -expected-id {:#x}",
        Place::After.idcode(),
        Place::Before.idcode()
    );
    let card = card().with_tap(Place::Before, 6).with_tap(Place::After, 4);
    let Some(said) = openocd_at(card, &chain, "", "halt; mdw 0x80000000 2") else { return };
    assert!(said.contains("0x80000000: 00000093 00108093"));
    complains_of_nothing(&said);
}

/// Through an FPGA's port, as OpenOCD knows a tunnel whose header ends a scan (its type 1); the instruction
/// that reaches it is USER4 of AMD's 7 series.
#[test]
fn the_core_behind_an_fpgas_port_is_reached() {
    let tunnel = TunnelParts { ir_length: 6, instruction: 0x23, ir_width: 5 };
    let fpga = format!("jtag newtap card cpu -irlen 6 -expected-id {IDCODE:#x}");
    for before in [false, true] {
        let (mut card, mut chain) = (card().with_tunnel(tunnel), fpga.clone());
        if before {
            card = card.with_tap(Place::Before, 4);
            chain += "; jtag newtap before tap -irlen 4 -ircapture 0x5 -irmask 0xf";
        }
        let Some(said) = openocd_at(
            card,
            &chain,
            "riscv use_bscan_tunnel 5 1;",
            "halt; reg pc 0x80000000; step; reg pc; reg ra 41; step; reg ra; \
             mww 0x80000100 0xcafef00d; mdw 0x80000100; reg misa; resume",
        ) else {
            return;
        };
        says(
            &said,
            &[
                "datacount=2 progbufsize=8",
                "XLEN=32, misa=0x40001105",
                "pc (/32): 0x80000004",
                "ra (/32): 0x0000002a",
                "0x80000100: cafef00d",
            ],
        );
        complains_of_nothing(&said);
    }
}

#[test]
fn memory_is_the_same_by_every_way_to_it() {
    let Some(said) = openocd(
        "halt; riscv set_mem_access progbuf; mww 0x80000200 0x11223344; mdw 0x80000200; \
         riscv set_mem_access sysbus; mdw 0x80000200; mwh 0x80000202 0x5566; mdw 0x80000200 2",
    ) else {
        return;
    };
    assert_eq!(said.matches("0x80000200: 11223344").count(), 2);
    assert!(said.contains("0x80000200: 55663344 00000000"));
}

#[test]
fn breakpoints_in_hardware_and_in_memory_are_hit() {
    for kind in ["hw", ""] {
        let Some(said) = openocd(&format!(
            "halt; reg pc 0x80000000; bp 0x80000008 4 {kind}; resume; wait_halt 5000; reg pc; \
             reg ra; rbp 0x80000008; mdw 0x80000008"
        )) else {
            return;
        };
        for wanted in ["pc (/32): 0x80000008", "ra (/32): 0x00000001", "0x80000008: 00000013"] {
            assert!(said.contains(wanted), "openocd did not say {wanted:?} ({kind})");
        }
    }
}

#[test]
fn a_reset_halts_before_the_first_instruction() {
    let Some(said) = openocd("reset_config none; reset halt; reg pc") else { return };
    assert!(said.contains("pc (/32): 0x20000000"));
}
