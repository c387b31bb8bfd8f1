//! `dxpu-manager`: pool records, placement, operations, API and command line.
//!
//! Proxies dial in over the control protocol ([`control`]); what they report and what is wanted of
//! them is recorded ([`types`], [`records`]) in an embedded store ([`store`]). A request goes from
//! the REST API ([`api`]) through placement ([`planner`]) into the records ([`operations`]), and
//! [`reconcile`] makes the proxies' tables agree with them. What devices do while they are lent is
//! recorded on request ([`recorder`]). The command line ([`cli`]) speaks to
//! the API as any other client does, through the crate [`manager_client`].

pub mod api;
pub mod audit;
pub mod cli;
pub mod config;
pub mod control;
pub mod erasure;
pub mod firmware;
pub mod health;
pub mod manager;
pub mod metrics;
pub mod notify;
pub mod operations;
pub mod planner;
pub mod reconcile;
pub mod recorder;
pub mod records;
pub mod serve;
pub mod spares;
pub mod store;

pub use manager_client::types;
