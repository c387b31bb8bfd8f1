//! A backup of the store, made while everything goes on.

use super::App;
use crate::types::{Problem, ProblemCode};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use manager_client::bodies::ProblemBody;
use tokio::sync::Semaphore;

/// Backups are made one at a time: each is in memory while it is sent.
static ONE: Semaphore = Semaphore::const_new(1);

/// All records as they are at one moment, as a file that `dxpu-manager restore` takes.
#[utoipa::path(get, path = "/v1/backup", tag = "manager",
    responses((status = 200, description = "A store's file", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn backup(State(manager): State<App>) -> Result<impl IntoResponse, Problem> {
    let Ok(_one) = ONE.try_acquire() else {
        let detail = "another backup is being made; try again when it is there";
        return Err(Problem::new(ProblemCode::LimitReached, detail).passing(true));
    };
    let records = manager.records.clone();
    let made = tokio::task::spawn_blocking(move || records.backup()).await;
    let made = made.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
    let file = made.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], file))
}
