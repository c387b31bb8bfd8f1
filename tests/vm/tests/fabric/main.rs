//! An unmodified Linux as the host, on a fabric of our programs: what the guest's own words say.

mod cards;
mod enumeration;
mod lending;
mod restarts;
mod scene;
mod several;
