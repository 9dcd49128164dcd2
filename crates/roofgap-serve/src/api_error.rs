//! Errors of a request, each with its HTTP status.

use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use roofgap_base::error::Error;
use roofgap_base::text::{cut, lines_without_controls};
use serde_json::json;

/// Characters of a text of the client that an error quotes.
const QUOTED: usize = 200;

/// Error of a request.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    message: String,
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

    /// No run has this id.
    pub fn no_run(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no run {:?}", cut(id, QUOTED)))
    }

    /// The run does not have what the request needs.
    pub fn conflict(why: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, why)
    }

    /// A file cannot be read.
    pub fn read(error: std::io::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the file: {error}"))
    }

    /// A handler panicked.
    pub fn bug() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; this is a bug")
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let message = lines_without_controls(&self.message).into_owned();
        let header = self.header.map(|header| [header]);
        (self.status, header, Json(json!({ "error": message }))).into_response()
    }
}
