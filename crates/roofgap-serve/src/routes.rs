//! The operations of the server, as in `openapi.json`.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};

use crate::guard;
use crate::handlers;
use crate::state::Shared;

/// Description of the operations (OpenAPI 3.1).
pub const OPENAPI: &str = include_str!("openapi.json");

/// Returns the operations by path, as the router writes paths.
fn operations() -> [(&'static str, MethodRouter<Shared>); 14] {
    [
        ("/", get(handlers::front)),
        ("/login", get(handlers::login)),
        ("/openapi.json", get(handlers::openapi)),
        ("/runs", get(handlers::runs)),
        ("/runs/{run_id}", get(handlers::run)),
        ("/runs/{run_id}/page", get(handlers::run_page)),
        ("/compare", get(handlers::compare_runs)),
        ("/profile/run", post(handlers::start)),
        ("/profile/{run_id}", get(handlers::job)),
        ("/profile/{run_id}/artifacts", get(handlers::artifact_list)),
        ("/profile/{run_id}/artifacts/{*path}", get(handlers::artifact)),
        ("/profile/{run_id}/timeline", get(handlers::timeline)),
        ("/profile/{run_id}/events", get(handlers::events)),
        ("/profile/{run_id}/cancel", post(handlers::cancel)),
    ]
}

/// Builds the router. Every request passes the guard, also one for an unknown path.
pub fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for (path, operation) in operations() {
        router = router.route(path, operation);
    }
    router
        .fallback(handlers::unknown)
        .layer(from_fn_with_state(shared.clone(), guard::check))
        .with_state(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let described: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
        let served = operations().map(|(path, _)| path.replace("{*path}", "{path}"));
        assert_eq!(described, BTreeSet::from(served));
    }
}
