//! A client of `dxpu-manager`'s REST API, and the words that both speak.
//!
//! [`types`] is the vocabulary: names, numbers, states, problems, as the API shows them and the
//! manager's store holds them. [`bodies`] are what requests carry, [`views`] what answers show.
//! [`Client`] asks, and waits for the answer.
//!
//! ```no_run
//! use manager_client::bodies::AllocateBody;
//! use manager_client::types::{OperationRecord, OperationState};
//! use manager_client::views::{List, SlotView};
//! use manager_client::Client;
//!
//! let client = Client::new("http://127.0.0.1:7780");
//! let free: List<SlotView> = client.get("/v1/slots?status=free")?;
//! println!("{} slots are free", free.items.len());
//!
//! let wish = AllocateBody { count: 2, model: Some("nvme".into()), ..AllocateBody::for_host("host1") };
//! let begun: OperationRecord = client.post("/v1/allocations", &wish, Some("build-4711"))?;
//! let ended = client.wait(begun.id, |_| {})?;
//! assert_eq!(ended.state, OperationState::Succeeded);
//! # Ok::<(), manager_client::ClientError>(())
//! ```

pub mod bodies;
mod client;
pub mod types;
pub mod views;

pub use client::{Client, ClientError, FILE_BOUND, FIRST_TURN, MAX_ANSWER, WAIT_TURN};
