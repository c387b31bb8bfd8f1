//! The REST API under `/v1`. `openapi.json` beside `Cargo.toml` describes it; it is made from the
//! handlers and types here, and a test keeps the two the same.

mod allocations;
mod audit;
mod backup;
mod conditional;
mod described;
mod erasures;
mod events;
mod extract;
mod firmware;
mod holds;
mod inventory;
mod lender;
mod listing;
mod nodes;
mod observe;
mod operations;
mod pool;
mod prefer;
mod problems;
mod proxies;
mod recordings;
pub mod server;
mod tables;
mod unread;
mod unstuck;
mod views;

pub(crate) use allocations::MAX_WITHIN_MS;

use crate::manager::Manager;
use crate::types::{MAX_IMAGE, Problem, ProblemCode};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

/// Largest body of a request, bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// What every handler has.
pub type App = Arc<Manager>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "dxpu-manager",
        description = "The pool of disaggregated PCIe devices: who is there, what is in the slots, \
                       who has it, and how to lend it and take it back. Requests that take time \
                       answer 202 with an operation, which can be waited for at its own address. \
                       Errors are problem details (RFC 9457) with a `code` for programs.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "pool", description = "Boxes, slots, hosts and devices"),
        (name = "allocations", description = "Lending and taking back"),
        (name = "operations", description = "Requests that take time"),
        (name = "proxies", description = "What the proxies themselves say, read when asked"),
        (name = "recorder", description = "What devices do while they are lent, recorded and looked at"),
        (name = "firmware", description = "What cards run, and how they get something else"),
        (name = "erasures", description = "What was erased between one tenant and the next"),
        (name = "manager", description = "The manager itself"),
    )
)]
struct Description;

fn documented() -> OpenApiRouter<App> {
    let images = routes!(firmware::images, firmware::add_image);
    let images = images.layer(DefaultBodyLimit::max(MAX_IMAGE));
    let inventory = routes!(inventory::show, inventory::replace);
    let inventory = inventory.layer(DefaultBodyLimit::max(inventory::MAX_INVENTORY));
    let mut router = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(nodes::healthz))
        .routes(routes!(audit::list))
        .routes(routes!(audit::metrics))
        .routes(routes!(backup::backup))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::show, nodes::forget))
        .routes(routes!(pool::boxes))
        .routes(routes!(pool::show_box))
        .routes(routes!(pool::slots))
        .routes(routes!(pool::show_slot))
        .routes(routes!(pool::hosts))
        .routes(routes!(pool::show_host))
        .routes(routes!(pool::devices))
        .routes(inventory)
        .routes(routes!(allocations::list, allocations::allocate))
        .routes(routes!(allocations::show, allocations::release))
        .routes(routes!(lender::extend))
        .routes(routes!(lender::take_back))
        .routes(routes!(lender::replace))
        .routes(routes!(lender::spares))
        .routes(routes!(lender::health))
        .routes(routes!(holds::drain))
        .routes(routes!(holds::holds, holds::hold, holds::put_back))
        .routes(routes!(allocations::bindings))
        .routes(routes!(allocations::show_binding, allocations::release_binding))
        .routes(routes!(operations::list))
        .routes(routes!(operations::show))
        .routes(routes!(operations::cancel))
        .routes(routes!(operations::story))
        .routes(routes!(erasures::list))
        .routes(routes!(erasures::show))
        .routes(routes!(erasures::erase))
        .routes(routes!(erasures::waive))
        .routes(routes!(events::list))
        .routes(routes!(events::stream))
        .routes(routes!(problems::list))
        .routes(routes!(problems::show))
        .routes(routes!(tables::all))
        .routes(routes!(tables::of_host))
        .routes(routes!(tables::of_box))
        .routes(routes!(proxies::recover))
        .routes(routes!(proxies::counters))
        .routes(routes!(proxies::stamps))
        .routes(routes!(proxies::set_sampling))
        .routes(routes!(proxies::set_log_level))
        .routes(images)
        .routes(routes!(firmware::cards))
        .routes(routes!(firmware::show, firmware::begin))
        .routes(routes!(recordings::list, recordings::start))
        .routes(routes!(recordings::show, recordings::forget))
        .routes(routes!(recordings::stop))
        .routes(routes!(recordings::file))
        .routes(routes!(recordings::latency));
    prefer::describe(router.get_openapi_mut());
    router
}

/// The OpenAPI description.
pub fn description() -> utoipa::openapi::OpenApi {
    documented().into_openapi()
}

/// The whole API.
pub fn router(manager: App) -> Router {
    let (router, _) = documented().split_for_parts();
    router
        .route(described::DESCRIPTION, get(|| async { axum::Json(description()) }))
        .fallback(|uri: axum::http::Uri| async move {
            Problem::new(ProblemCode::NoSuchPath, format!("there is nothing at {}", uri.path()))
        })
        .method_not_allowed_fallback(|method: axum::http::Method| async move {
            Problem::new(ProblemCode::MethodNotAllowed, format!("{method} is not allowed here"))
        })
        .layer(axum::middleware::from_fn(conditional::tags))
        .layer(axum::middleware::from_fn(described::refuse_others))
        .layer(axum::middleware::from_fn_with_state(manager.clone(), observe::observe))
        .layer(axum::middleware::from_fn_with_state(manager.clone(), unread::read))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(manager)
}
