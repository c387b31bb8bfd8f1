//! Tells the linker where the board's memory is, and the boot loader which keys it trusts.

#[path = "../common/build_board.rs"]
mod build_board;

fn main() {
    println!("cargo:rerun-if-changed=../common/build_board.rs");
    build_board::build(&["fw-box", "fw-host"], "boot");
}
