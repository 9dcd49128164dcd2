//! The operations of the server, as in `openapi.json`, and their handlers.

use crate::api_error::ApiError;
use crate::download::RunFile;
use crate::guard::{self, COOKIE};
use crate::{AppState, Shared, page};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use roofgap_analyze::compare::compare;
use roofgap_base::file::read_document;
use roofgap_report::compare as render;
use roofgap_report::page::{served, timeline_window};
use roofgap_runs::open::{OpenedSide, Overrides, open_side};
use roofgap_runs::runs::{list, list_artifacts, show};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Policy of our own pages.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'";
/// Policy of a page whose script is not known: it may run, but as a site of its own that can load and send nothing.
const REPORT_POLICY: &str = "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'unsafe-inline'";

/// Items of a window of the timeline in one kind of lanes, by default and at most.
const WINDOW_ITEMS: (usize, usize) = (20_000, 100_000);

/// Runs blocking work on a thread of its own.
async fn blocking<T: Send + 'static>(
    shared: Shared,
    work: impl FnOnce(&AppState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    done.unwrap_or(Err(ApiError::bug()))
}

type Answer = Result<Response, ApiError>;

/// Makes an operation of blocking work on a part of the request.
fn blocking_get<P>(work: fn(&AppState, P) -> Answer) -> MethodRouter<Shared>
where
    P: FromRequestParts<Shared> + Send + 'static,
{
    get(async move |State(shared): State<Shared>, part: P| {
        blocking(shared, move |state| work(state, part)).await
    })
}

fn document(value: &impl Serialize) -> Answer {
    Ok(Json(serde_json::to_value(value).map_err(|_| ApiError::bug())?).into_response())
}

fn html(text: String, policy: &str) -> Response {
    ([(header::CONTENT_SECURITY_POLICY, policy.to_owned())], Html(text)).into_response()
}

#[derive(Debug, Deserialize)]
pub struct Login {
    token: String,
}

/// Exchanges the token for a cookie, for a browser.
fn login(state: &AppState, Query(login): Query<Login>) -> Answer {
    if !state.props.token.matches(&login.token) {
        return Err(ApiError::unauthorized());
    }
    let secure = if state.props.behind_tls_proxy { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict{secure}", login.token);
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, "/".to_owned())];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// Describes the operations.
fn openapi(state: &AppState, (): ()) -> Answer {
    let mut openapi: Value = serde_json::from_str(OPENAPI).map_err(|_| ApiError::bug())?;
    openapi["info"]["version"] = json!(state.props.version);
    document(&openapi)
}

/// Shows the list of runs.
fn front(state: &AppState, (): ()) -> Answer {
    Ok(html(page::runs(&list(&state.props.runs)?), PAGE_POLICY))
}

/// Lists the runs.
fn runs(state: &AppState, (): ()) -> Answer {
    document(&json!({ "runs": list(&state.props.runs)? }))
}

/// Shows one run.
fn run(state: &AppState, Path(id): Path<String>) -> Answer {
    document(&show(&state.run(&id)?)?)
}

/// Shows the report of a run, or its progress.
fn run_page(state: &AppState, Path(id): Path<String>) -> Answer {
    let run = state.run(&id)?;
    let file = run.path.join("report.html");
    let is_file = std::fs::symlink_metadata(&file).is_ok_and(|facts| facts.is_file());
    let Some(Ok(report)) = is_file.then(|| read_document(&file)) else {
        return Ok(html(page::progress(&show(&run)?), PAGE_POLICY));
    };
    let report = String::from_utf8_lossy(&report);
    Ok(match served(&report, &format!("/profile/{}/timeline", run.id)) {
        Some(served) => html(served.page, &served.policy),
        None => html(report.into_owned(), REPORT_POLICY),
    })
}

#[derive(Debug, Deserialize)]
pub struct WindowQuery {
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    limit: Option<usize>,
}

/// Gives the items of a window of a run's timeline.
pub async fn timeline(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(query): Query<WindowQuery>,
) -> Answer {
    let (from, to) = (query.from_ns.unwrap_or(0), query.to_ns.unwrap_or(i64::MAX));
    if to <= from {
        let why = format!("the window from {from} ns to {to} ns is empty; to_ns must be larger than from_ns");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, why));
    }
    let (usual, most) = WINDOW_ITEMS;
    let limit = query.limit.unwrap_or(usual).clamp(1, most);
    let place = shared.windows.clone().acquire_owned().await;
    let place = place.map_err(|_| ApiError::bug())?;
    blocking(shared, move |state| {
        // Kept until the work is done, also if the client has left.
        let _place = place;
        let run = state.run(&id)?;
        let opened = state.opened.open(&[run.path]).map_err(ApiError::conflict)?;
        let window = timeline_window(opened.bundle(), from, to, limit);
        document(&window.map_err(|why| ApiError::conflict(format!("this run has no timeline: {why}")))?)
    })
    .await
}

/// Lists the files of a run with their hashes.
pub async fn artifact_list(State(shared): State<Shared>, Path(id): Path<String>) -> Answer {
    let (run, mut list) = blocking(shared.clone(), move |state| {
        let run = state.run(&id)?;
        let list = list_artifacts(&run)?;
        Ok((run, list))
    })
    .await?;
    for artifact in &mut list.artifacts {
        let (run, path) = (run.clone(), artifact.path.clone());
        let file = blocking(shared.clone(), move |_| RunFile::open(&run, &path)).await;
        // A file may disappear meanwhile.
        if let Ok(file) = file {
            artifact.sha256 = file.hash(&shared.hashes).await.ok();
        }
    }
    document(&list)
}

/// Gives a file of a run, whole or in part.
pub async fn artifact(
    State(shared): State<Shared>,
    Path((id, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let file = blocking(shared.clone(), move |state| RunFile::open(&state.run(&id)?, &path)).await?;
    let hash = file.hash(&shared.hashes).await?;
    file.download(&hash, &headers)
}

#[derive(Debug, Deserialize)]
pub struct CompareQuery {
    base: String,
    head: String,
    #[serde(default)]
    format: CompareFormat,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CompareFormat {
    #[default]
    Json,
    Html,
    Markdown,
}

/// Compares two runs.
fn compare_runs(state: &AppState, Query(query): Query<CompareQuery>) -> Answer {
    let side = |id: &str| -> Result<OpenedSide, ApiError> {
        let run = state.run(id)?;
        let (overrides, exporter) = (Overrides::default(), state.opened.exporter());
        open_side(&state.props.runs, &run.id, &overrides, exporter).map_err(ApiError::conflict)
    };
    let (base, head) = (side(&query.base)?, side(&query.head)?);
    let comparison = compare(base.as_side(), head.as_side(), &[]);
    match query.format {
        CompareFormat::Json => document(&comparison),
        CompareFormat::Html => {
            let pages = [&base, &head].map(|side| PathBuf::from(format!("/runs/{}/page", side.facts.title)));
            let shown = [(&base, &pages[0]), (&head, &pages[1])]
                .map(|(side, page)| render::Shown { analysis: &side.analysis, page: Some(page) });
            Ok(html(render::html(&comparison, shown), REPORT_POLICY))
        }
        CompareFormat::Markdown => {
            let kind = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
            Ok((kind, render::markdown(&comparison)).into_response())
        }
    }
}

/// Description of the operations (OpenAPI 3.1).
pub const OPENAPI: &str = include_str!("openapi.json");

/// Returns the operations by path, as the router writes paths.
fn operations() -> [(&'static str, MethodRouter<Shared>); 10] {
    [
        ("/", blocking_get(front)),
        ("/login", blocking_get(login)),
        ("/openapi.json", blocking_get(openapi)),
        ("/runs", blocking_get(runs)),
        ("/runs/{run_id}", blocking_get(run)),
        ("/runs/{run_id}/page", blocking_get(run_page)),
        ("/compare", blocking_get(compare_runs)),
        ("/profile/{run_id}/artifacts", get(artifact_list)),
        ("/profile/{run_id}/artifacts/{*path}", get(artifact)),
        ("/profile/{run_id}/timeline", get(timeline)),
    ]
}

/// Builds the router. Every request passes the guard, also one for an unknown path.
pub fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for (path, operation) in operations() {
        router = router.route(path, operation);
    }
    router
        .fallback(async || {
            ApiError::new(StatusCode::NOT_FOUND, "no such operation; GET /openapi.json lists them")
        })
        .layer(from_fn_with_state(shared.clone(), guard::check))
        .with_state(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::download::AT_ONCE;
    use crate::guard::{Hosts, Token};
    use crate::{Limits, ServeProps};
    use roofgap_collect::child::Cancel;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn state(folder: &std::path::Path) -> Shared {
        let props = ServeProps {
            runs: folder.to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            token: Token::open(&folder.join("token")).unwrap().0,
            hosts: Vec::new(),
            behind_tls_proxy: false,
            version: "0".into(),
            limits: Limits::default(),
            cancel: Cancel::new(),
        };
        AppState::new(props, Hosts(Vec::new()))
    }

    #[test]
    fn windows_of_timelines_leave_threads_to_other_requests() {
        let folder = tempfile::tempdir().unwrap();
        let shared = state(folder.path());
        // One thread, so that blocking work is done in the order of its requests.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let free = shared.windows.available_permits() as u32;
            let places = Arc::clone(&shared.windows).acquire_many_owned(free).await.unwrap();
            let query = WindowQuery { from_ns: None, to_ns: None, limit: None };
            let id = "20000101-000000".to_owned();
            let mut window = Box::pin(timeline(State(shared.clone()), Path(id), Query(query)));
            tokio::select! {
                biased;
                _ = &mut window => panic!("a window without a place"),
                answer = blocking(shared.clone(), |state| runs(state, ())) => assert!(answer.is_ok()),
            }
            drop(places);
            assert_eq!(window.await.unwrap_err().status, StatusCode::NOT_FOUND);
            assert_eq!(shared.windows.available_permits() as u32, free);
        });
    }

    #[test]
    fn hashes_leave_threads_to_other_requests() {
        let folder = tempfile::tempdir().unwrap();
        let shared = state(folder.path());
        let id = "20000101-000000";
        std::fs::create_dir(folder.path().join(id)).unwrap();
        // Sparse: it takes hours to hash.
        let large = std::fs::File::create(folder.path().join(id).join("large.log")).unwrap();
        large.set_len(1 << 42).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let clients: Vec<_> = (0..16)
                .flat_map(|_| {
                    let file = Path((id.to_owned(), "large.log".to_owned()));
                    let file = artifact(State(shared.clone()), file, HeaderMap::new());
                    let list = artifact_list(State(shared.clone()), Path(id.to_owned()));
                    [
                        tokio::spawn(async { file.await.map(drop) }),
                        tokio::spawn(async { list.await.map(drop) }),
                    ]
                })
                .collect();
            while shared.hashes.places.available_permits() == AT_ONCE {
                tokio::task::yield_now().await;
            }
            assert!(blocking(shared.clone(), |state| runs(state, ())).await.is_ok());
            assert_eq!(shared.hashes.places.available_permits(), AT_ONCE - 1, "it is hashed once");
            clients.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn runs_are_looked_up_on_threads_for_blocking_work() {
        let folder = tempfile::tempdir().unwrap();
        let shared = state(folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The only thread is taken until the sender is gone.
            let (taken, free) = std::sync::mpsc::channel::<()>();
            let other = tokio::task::spawn_blocking(move || free.recv().is_err());
            let id = Path("20000101-000000".to_owned());
            let mut list = Box::pin(artifact_list(State(shared.clone()), id));
            tokio::select! {
                biased;
                _ = &mut list => panic!("a list without a thread"),
                () = std::future::ready(()) => {}
            }
            drop(taken);
            assert!(other.await.unwrap());
            assert_eq!(list.await.unwrap_err().status, StatusCode::NOT_FOUND);
        });
    }

    #[test]
    fn the_end_of_the_server_ends_an_export() {
        let folder = tempfile::tempdir().unwrap();
        let shared = state(folder.path());
        assert!(!shared.opened.exporter().cancel.is_requested());
        shared.props.cancel.request();
        assert!(shared.opened.exporter().cancel.is_requested());
    }

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let described: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
        let served = operations().map(|(path, _)| path.replace("{*path}", "{path}"));
        assert_eq!(described, BTreeSet::from(served));
    }
}
