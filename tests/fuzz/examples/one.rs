#![allow(missing_docs)]
fn main() {
    let f = std::env::args().nth(1).unwrap();
    fuzz_targets::slot::run(&std::fs::read(f).unwrap());
}
