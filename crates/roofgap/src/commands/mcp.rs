//! `roofgap mcp`: serves tools for agents.

use crate::args::Mcp;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_mcp::{McpProps, Roots};
use roofgap_runs::open::Exporter;

/// Serves until the client closes standard input. Standard output belongs to the protocol.
pub fn run(args: Mcp) -> Result<Exit, Error> {
    roofgap_mcp::run(McpProps {
        roots: Roots::new(&args.base.dir, &args.folders).map_err(Error::of)?,
        exporter: Exporter::new(Search::from_env(args.nsys), Cancel::new()),
        version: env!("CARGO_PKG_VERSION").into(),
    })
    .map_err(Error::of)?;
    Ok(Exit::Done)
}
