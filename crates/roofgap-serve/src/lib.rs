//! An HTTP server over the folder of the runs.
//!
//! [`serve`] listens until it is cancelled. Sessions are child processes of the server, one at a time, and the state of every run is
//! in its folder, so that a restarted server knows all of them.
//!
//! - `state`: settings, limits, and what all requests share;
//! - `guard`: the bearer token and its file; checks of host, origin and token before every request;
//! - `request`: a request for a run, and its command line;
//! - `queue`: requested sessions, on disk and in order;
//! - `follow`: the events of a session;
//! - `download`: a file of a run, whole or in part, and its hash;
//! - `page`: the list of runs and the progress of a run for a browser;
//! - `handlers`: the operations, as in `openapi.json`;
//! - `listen`: connections and their limits, the certificate and its key.

mod api_error;
mod download;
mod follow;
mod guard;
mod handlers;
mod listen;
mod page;
mod queue;
mod request;
mod state;

pub use guard::Token;
pub use handlers::OPENAPI;
pub use listen::{Server, serve};
pub use state::{Limits, Permissions, ServeProps, TlsFiles};
