//! TLPs that a target makes itself.

use tlp_codec::tlp::{Kind, Repr};

/// The bytes of a TLP, which is a right one.
pub(crate) fn emit(kind: Kind<'_>) -> Vec<u8> {
    let repr = Repr::new(kind);
    let mut tlp = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut tlp).expect("a right TLP");
    tlp.truncate(length);
    tlp
}
