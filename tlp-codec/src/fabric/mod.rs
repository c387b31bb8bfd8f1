//! Frames and records: the wire between two proxies, as `docs/wire.md` has it.
