//! The conformance kit of the wire (`tests/conformance`): its vectors against the link.

mod link;
