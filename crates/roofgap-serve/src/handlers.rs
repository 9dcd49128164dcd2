//! The operations of the server, as in `openapi.json`, and their handlers.

use crate::api_error::ApiError;
use crate::download::{Download, RunFile};
use crate::guard::{self, COOKIE};
use crate::queue::Queued;
use crate::request::RunRequest;
use crate::{AppState, Shared};
use crate::{follow, page};
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use http_body_util::LengthLimitError;
use roofgap_analyze::compare::{CompareOptions, compare};
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

/// Interval between checks of a session that a client waits for.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// Runs blocking work on a thread of its own.
async fn blocking<T: Send + 'static>(
    shared: Shared,
    work: impl FnOnce(&AppState) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    done.unwrap_or(Err(ApiError::bug()))
}

fn document(value: &impl Serialize) -> Result<Response, ApiError> {
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
pub async fn login(State(shared): State<Shared>, Query(login): Query<Login>) -> Result<Response, ApiError> {
    if !shared.token.matches(&login.token) {
        return Err(ApiError::unauthorized());
    }
    let secure = if shared.props.tls.is_some() || shared.props.behind_tls_proxy { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict{secure}", login.token);
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, "/".to_owned())];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// Describes the operations.
pub async fn openapi(State(shared): State<Shared>) -> Result<Response, ApiError> {
    let mut document: Value = serde_json::from_str(OPENAPI).map_err(|_| ApiError::bug())?;
    document["info"]["version"] = json!(shared.props.version);
    Ok(Json(document).into_response())
}

/// Shows the list of runs.
pub async fn front(State(shared): State<Shared>) -> Result<Response, ApiError> {
    blocking(shared, |state| {
        let runs = list(&state.props.runs)?;
        Ok(html(page::runs(&runs, &state.queue.unfinished()), PAGE_POLICY))
    })
    .await
}

/// Lists the runs and the queue.
pub async fn runs(State(shared): State<Shared>) -> Result<Response, ApiError> {
    blocking(shared, |state| {
        let runs = list(&state.props.runs)?;
        document(&json!({ "runs": runs, "queue": state.queue.unfinished() }))
    })
    .await
}

/// Shows one run.
pub async fn run(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    blocking(shared, move |state| document(&show(&state.run(&id)?)?)).await
}

/// Shows the report of a run, or its progress.
pub async fn run_page(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    blocking(shared, move |state| {
        let run = state.run(&id)?;
        let file = run.path.join("report.html");
        let is_file = std::fs::symlink_metadata(&file).is_ok_and(|facts| facts.is_file());
        match is_file.then(|| read_document(&file)) {
            Some(Ok(report)) => {
                let report = String::from_utf8_lossy(&report);
                Ok(match served(&report, &format!("/profile/{}/timeline", run.id)) {
                    Some(served) => html(served.page, &served.policy),
                    None => html(report.into_owned(), REPORT_POLICY),
                })
            }
            _ => Ok(html(page::progress(&show(&run)?), PAGE_POLICY)),
        }
    })
    .await
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
) -> Result<Response, ApiError> {
    let (from, to) = (query.from_ns.unwrap_or(0), query.to_ns.unwrap_or(i64::MAX));
    if to <= from {
        let why = format!("the window from {from} ns to {to} ns is empty; to_ns must be larger than from_ns");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, why));
    }
    let (usual, most) = WINDOW_ITEMS;
    let limit = query.limit.unwrap_or(usual).clamp(1, most);
    let place = shared.windows.clone().acquire_owned().await;
    let place = place.map_err(|_| ApiError::ending())?;
    blocking(shared, move |state| {
        // Kept until the work is done, also if the client has left.
        let _place = place;
        let run = state.run(&id)?;
        let opened = state.opened.open(&[run.path]).map_err(ApiError::load)?;
        document(&timeline_window(opened.bundle(), from, to, limit)?)
    })
    .await
}

/// Lists the files of a run with their hashes.
pub async fn artifact_list(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
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
) -> Result<Download, ApiError> {
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
pub async fn compare_runs(
    State(shared): State<Shared>,
    Query(query): Query<CompareQuery>,
) -> Result<Response, ApiError> {
    blocking(shared, move |state| {
        let side = |id: &str| -> Result<OpenedSide, ApiError> {
            let run = state.run(id)?;
            let (overrides, exporter) = (Overrides::default(), state.opened.exporter());
            open_side(&state.props.runs, &run.id, &overrides, exporter).map_err(ApiError::load)
        };
        let (base, head) = (side(&query.base)?, side(&query.head)?);
        let comparison = compare(base.as_side(), head.as_side(), &CompareOptions::default());
        match query.format {
            CompareFormat::Json => document(&comparison),
            CompareFormat::Html => {
                let pages =
                    [&base, &head].map(|side| PathBuf::from(format!("/runs/{}/page", side.facts.title)));
                let shown = [(&base, &pages[0]), (&head, &pages[1])].map(|(side, page)| render::Shown {
                    page: Some(page),
                    ..render::Shown::analysis(&side.analysis)
                });
                Ok(html(render::html(&comparison, &shown), REPORT_POLICY))
            }
            CompareFormat::Markdown => {
                let kind = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
                Ok((kind, render::markdown(&comparison)).into_response())
            }
        }
    })
    .await
}

/// Requests a session.
pub async fn start(State(shared): State<Shared>, request: Request) -> Result<Response, ApiError> {
    let limits = shared.props.limits;
    let body = read_body(request.into_body(), limits.body_bytes);
    let body = tokio::time::timeout(limits.client, body).await;
    let too_slow = |_| {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time")
            .with_header(header::CONNECTION, "close")
    };
    let body = body.map_err(too_slow)??;
    // A list would be taken for the fields of the request in order.
    let document: serde_json::Map<String, Value> = serde_json::from_slice(&body).map_err(ApiError::body)?;
    let request: RunRequest = serde_json::from_value(Value::Object(document)).map_err(ApiError::body)?;
    let wait = request.wait;
    let queued = blocking(shared.clone(), move |state| {
        request.check(state.props.permissions, state.props.config_dir.as_deref())?;
        state.queue.add(request)
    })
    .await?;
    if !wait {
        return blocking(shared, move |state| {
            let now = state.queue.find(&queued.id).unwrap_or(queued);
            Ok((StatusCode::ACCEPTED, described(state, &now)).into_response())
        })
        .await;
    }
    loop {
        match shared.queue.find(&queued.id) {
            Some(now) if now.is_over() => return blocking(shared, move |state| result(state, &now)).await,
            Some(_) => tokio::time::sleep(LOOK).await,
            None => return Err(ApiError::no_run(&queued.id)),
        }
    }
}

async fn read_body(body: Body, most: usize) -> Result<axum::body::Bytes, ApiError> {
    let too_large = |error: axum::Error| {
        let error = error.into_inner();
        if error.is::<LengthLimitError>() {
            // The rest of the body is not read.
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the request has more than {most} bytes"))
                .with_header(header::CONNECTION, "close")
        } else {
            ApiError::body(error)
        }
    };
    to_bytes(body, most).await.map_err(too_large)
}

/// Returns the answer of an ended session with the HTTP status of its exit status.
fn result(state: &AppState, ended: &Queued) -> Result<Response, ApiError> {
    let status = match ended.exit_status {
        Some(0 | 3) => 200,
        Some(2) => 400,
        Some(4) => 422,
        Some(130) => 499,
        None if ended.run_id.is_none() && ended.error.is_none() => 499,
        _ => 500,
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let answer = read_document(&state.queue.folder().answer(&ended.id)).unwrap_or_default();
    match serde_json::from_slice::<Value>(&answer) {
        Ok(answer) => Ok((status, Json(answer)).into_response()),
        Err(_) => {
            let error = ended.error.clone().unwrap_or_else(|| "cancelled".to_owned());
            Ok((status, Json(json!({ "error": error, "job": ended.id }))).into_response())
        }
    }
}

/// Describes a requested session: its record, its place in the queue, and the state of its run.
fn described(shared: &AppState, queued: &Queued) -> Json<Value> {
    let mut value = serde_json::to_value(queued).unwrap_or_default();
    value["sessions_before"] = json!(shared.queue.position(&queued.id));
    let refused = (!queued.is_over()).then(|| queued.request.is_permitted(shared.props.permissions).err());
    value["waits_for"] = json!(refused.flatten().map(|error| error.message));
    value["run_state"] = json!(
        queued
            .run_id
            .as_deref()
            .and_then(|run| show(&shared.run(run).ok()?).ok())
            .map(|details| details.summary.status)
    );
    Json(value)
}

/// Gives the state of a requested session.
pub async fn requested(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    blocking(shared, move |state| {
        let queued = state.queue.find(&id);
        let queued = queued.ok_or_else(|| ApiError::no_run(&id))?;
        Ok(described(state, &queued))
    })
    .await
}

/// Checks that there is a run, or a request for one, of this id.
fn is_known(state: &AppState, id: &str) -> Result<(), ApiError> {
    match state.queue.find(id) {
        Some(_) => Ok(()),
        None => state.run(id).map(drop),
    }
}

/// Follows a session.
pub async fn events(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = blocking(shared.clone(), move |state| is_known(state, &id).map(|()| id)).await?;
    Ok(Sse::new(follow::events(shared, id)).keep_alive(KeepAlive::default()).into_response())
}

/// Cancels a session.
pub async fn cancel(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    blocking(shared, move |state| {
        is_known(state, &id)?;
        let queued = state.queue.cancel(&id)?;
        Ok((StatusCode::ACCEPTED, described(state, &queued)).into_response())
    })
    .await
}

/// Description of the operations (OpenAPI 3.1).
pub const OPENAPI: &str = include_str!("openapi.json");

/// Returns the operations by path, as the router writes paths.
fn operations() -> [(&'static str, MethodRouter<Shared>); 14] {
    [
        ("/", get(front)),
        ("/login", get(login)),
        ("/openapi.json", get(openapi)),
        ("/runs", get(runs)),
        ("/runs/{run_id}", get(run)),
        ("/runs/{run_id}/page", get(run_page)),
        ("/compare", get(compare_runs)),
        ("/profile/run", post(start)),
        ("/profile/{run_id}", get(requested)),
        ("/profile/{run_id}/artifacts", get(artifact_list)),
        ("/profile/{run_id}/artifacts/{*path}", get(artifact)),
        ("/profile/{run_id}/timeline", get(timeline)),
        ("/profile/{run_id}/events", get(events)),
        ("/profile/{run_id}/cancel", post(cancel)),
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
    use crate::queue::Queue;
    use crate::{Limits, Permissions, ServeProps};
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
            tls: None,
            behind_tls_proxy: false,
            permissions: Permissions::default(),
            config_dir: None,
            executable: "/bin/roofgap".into(),
            version: "0".into(),
            limits: Limits::default(),
            cancel: Cancel::new(),
        };
        let queue = Queue::open(&props).unwrap();
        AppState::new(props, Hosts(Vec::new()), queue)
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
                answer = runs(State(shared.clone())) => assert!(answer.is_ok()),
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
            assert!(runs(State(shared.clone())).await.is_ok());
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
            let id = || Path("20000101-000000".to_owned());
            let mut events = Box::pin(events(State(shared.clone()), id()));
            let mut cancel = Box::pin(cancel(State(shared.clone()), id()));
            tokio::select! {
                biased;
                _ = &mut events => panic!("events without a thread"),
                _ = &mut cancel => panic!("cancel without a thread"),
                () = std::future::ready(()) => {}
            }
            drop(taken);
            assert!(other.await.unwrap());
            assert_eq!(events.await.unwrap_err().status, StatusCode::NOT_FOUND);
            assert_eq!(cancel.await.unwrap_err().status, StatusCode::NOT_FOUND);
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
