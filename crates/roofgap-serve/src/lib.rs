//! An HTTP server over the folder of the runs.
//!
//! [`serve`] listens until it is cancelled. Sessions are child processes of the server, one at a time, and the state of every run is
//! in its folder, so that a restarted server knows all of them.
//!
//! - [`props`]: settings and limits;
//! - [`token`]: the bearer token and its file;
//! - `guard`: checks of host, origin and token before every request;
//! - `request`: a request for a run, and its command line;
//! - `job`, `queue`: requested sessions, on disk and in order;
//! - `follow`: the events of a session;
//! - `download`, `hashes`: a file of a run, whole or in part, and its hash;
//! - `page`: the list of runs and the progress of a run for a browser;
//! - `routes`, `handlers`: the operations, as in `openapi.json`;
//! - `tls`: the certificate and its key;
//! - `listen`: connections and their limits.

pub mod props;
pub mod token;

mod api_error;
mod download;
mod follow;
mod guard;
mod handlers;
mod hashes;
mod job;
mod listen;
mod page;
mod queue;
mod request;
mod routes;
mod state;
mod tls;

pub use listen::{Server, serve};
pub use props::{Limits, Permissions, ServeProps, TlsFiles};
pub use routes::OPENAPI;
pub use token::Token;
