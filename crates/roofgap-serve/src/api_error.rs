//! Errors of a request, each with its HTTP status.

use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use roofgap_base::error::Error;
use roofgap_base::text::{cut, lines_without_controls};
use roofgap_report::page::NoTimeline;
use roofgap_runs::config::ConfigError;
use roofgap_runs::run_dir::LocateError;
use serde_json::json;

/// Characters of a text of the client that an error quotes.
const QUOTED: usize = 200;

/// Error of a request.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    header: Option<(HeaderName, String)>,
}

impl ApiError {
    /// Makes an error.
    pub fn new(status: StatusCode, message: impl ToString) -> Self {
        ApiError { status, message: message.to_string(), header: None }
    }

    /// Adds a header to the answer.
    pub fn with_header(self, name: HeaderName, value: impl Into<String>) -> Self {
        ApiError { header: Some((name, value.into())), ..self }
    }

    /// The token is missing or wrong.
    pub fn unauthorized() -> Self {
        let why = "the request needs the header `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::UNAUTHORIZED, why).with_header(header::WWW_AUTHENTICATE, "Bearer")
    }

    /// No run, and no request for one, has this id.
    pub fn no_run(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no run {:?}", cut(id, QUOTED)))
    }

    /// The body is not a request.
    pub fn body(why: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, format!("cannot read the request: {why}"))
    }

    /// A file cannot be read.
    pub fn read(error: std::io::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the file: {error}"))
    }

    /// The inputs of a question cannot be loaded.
    pub fn load(error: Error) -> Self {
        Self::new(StatusCode::CONFLICT, error)
    }

    /// The server is ending.
    pub fn ending() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending")
    }

    /// A handler panicked.
    pub fn bug() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; this is a bug")
    }
}

/// Gives the errors of a type an HTTP status.
macro_rules! statuses {
    ($($error:ty => $status:ident, $prefix:literal;)*) => {
        $(impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                Self::new(StatusCode::$status, format!(concat!($prefix, "{}"), error))
            }
        })*
    };
}

statuses! {
    ConfigError => BAD_REQUEST, "";
    LocateError => NOT_FOUND, "";
    NoTimeline => CONFLICT, "this run has no timeline: ";
    Error => INTERNAL_SERVER_ERROR, "";
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let message = lines_without_controls(&self.message).into_owned();
        let header = self.header.map(|header| [header]);
        (self.status, header, Json(json!({ "error": message }))).into_response()
    }
}
