//! Errors of a request, each with its HTTP status.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use roofgap_base::error::Error;
use roofgap_base::text::lines_without_controls;
use roofgap_report::page::NoTimeline;
use roofgap_runs::config::ConfigError;
use roofgap_runs::run_dir::LocateError;
use serde_json::json;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The token is missing or wrong.
    #[error("the request needs the header `Authorization: Bearer TOKEN`")]
    Unauthorized,
    /// The host is not one of this server.
    #[error("this server has another name than {0:?}; start it with --host to add one")]
    WrongHost(String),
    /// The request comes from a page of another site.
    #[error("requests from pages of other sites are refused")]
    WrongOrigin,
    /// No run, and no request for one, has this id.
    #[error("no run {0:?}")]
    NoRun(String),
    /// The run has no such file.
    #[error("the run {run} has no file {path:?}")]
    NoFile { run: String, path: String },
    /// No operation has this path.
    #[error("no such operation; GET /openapi.json lists them")]
    NoOperation,
    /// The server was started without `--allow-run`.
    #[error("this server starts no runs; start it with --allow-run")]
    RunsOff,
    /// The server was started without `--allow-command`.
    #[error("this server runs no command lines; start it with --allow-command")]
    CommandsOff,
    /// A preset is unknown.
    #[error("{0:?} is not a preset; `roofgap config list` lists them as group=option")]
    NoPreset(String),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The body is not a request.
    #[error("cannot read the request: {0}")]
    Body(String),
    /// The body is too large.
    #[error("the request has more than {0} bytes")]
    TooLarge(usize),
    /// The body did not arrive in time.
    #[error("the request did not arrive in time")]
    TooSlow,
    /// The queue is full.
    #[error("{0} sessions wait already; try again later")]
    QueueFull(usize),
    /// The run was not started by this server, or has ended.
    #[error("{0} cannot be cancelled here: it has ended, or was not started by this server")]
    NotCancellable(String),
    /// The range lies outside of the file.
    #[error("the range is outside of the file, which has {0} bytes")]
    Range(u64),
    /// A side of a comparison cannot be loaded.
    #[error(transparent)]
    Load(Error),
    /// The run has no timeline.
    #[error("this run has no timeline: {0}")]
    NoTimeline(#[from] NoTimeline),
    /// A window ends before it starts.
    #[error("the window from {from} ns to {to} ns is empty; to_ns must be larger than from_ns")]
    EmptyWindow { from: i64, to: i64 },
    /// No run matches.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The runs cannot be read.
    #[error(transparent)]
    Runs(#[from] Error),
    /// The state of the queue cannot be written.
    #[error("cannot write the queue: {0}")]
    Queue(std::io::Error),
    /// A file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(std::io::Error),
    /// The server is ending.
    #[error("the server is ending")]
    Ending,
    /// A handler panicked.
    #[error("the request failed; this is a bug")]
    Panic,
}

impl ApiError {
    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::WrongHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::WrongOrigin | Self::RunsOff | Self::CommandsOff => StatusCode::FORBIDDEN,
            Self::NoRun(_) | Self::NoFile { .. } | Self::NoOperation | Self::Locate(_) => {
                StatusCode::NOT_FOUND
            }
            Self::NoPreset(_) | Self::Config(_) | Self::Body(_) | Self::EmptyWindow { .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::QueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotCancellable(_) | Self::Load(_) | Self::NoTimeline(_) => StatusCode::CONFLICT,
            Self::Range(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
            Self::Runs(_) | Self::Queue(_) | Self::Read(_) | Self::Panic => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let message = lines_without_controls(&self.to_string()).into_owned();
        let mut response = (self.status(), Json(json!({ "error": message }))).into_response();
        let headers = response.headers_mut();
        match self {
            Self::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Range(bytes) => {
                if let Ok(range) = HeaderValue::from_str(&format!("bytes */{bytes}")) {
                    headers.insert(header::CONTENT_RANGE, range);
                }
            }
            // The rest of the body is not read.
            Self::TooLarge(_) | Self::TooSlow => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
