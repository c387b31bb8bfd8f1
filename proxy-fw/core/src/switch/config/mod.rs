//! The registers of a port: one file for each capability, put together in `layouts`.

pub(crate) mod access_control;
pub(crate) mod error_reporting;
pub(crate) mod express;
pub(crate) mod header;
pub(crate) mod identity;
pub(crate) mod layouts;
pub(crate) mod msi;
pub(crate) mod power;
pub(crate) mod slot;

pub(crate) use crate::config_space::{
    ConfigSpace, Layout, Register, ResetKind, Written, capability, extended_capability,
};

#[cfg(test)]
mod tests;
