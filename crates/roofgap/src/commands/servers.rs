//! `roofgap serve`: serves the runs over HTTP. `roofgap mcp`: serves tools for agents.

use crate::args::{Mcp, Serve};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use std::path::Path;

/// Serves tools for agents until the client closes standard input. Standard output belongs to the protocol.
#[cfg(feature = "mcp")]
pub fn mcp(args: Mcp, dir: &Path) -> Result<Exit, Error> {
    let search = roofgap_collect::tool::Search::from_env(args.nsys);
    roofgap_mcp::run(roofgap_mcp::McpProps {
        roots: roofgap_mcp::Roots::new(dir, &args.folders)?,
        exporter: roofgap_runs::open::Exporter::new(search, roofgap_collect::child::Cancel::new()),
        version: env!("CARGO_PKG_VERSION").into(),
    })?;
    Ok(Exit::Done)
}

#[cfg(not(feature = "mcp"))]
pub fn mcp(_: Mcp, _: &Path) -> Result<Exit, Error> {
    Err(super::not_built("command mcp"))
}

#[cfg(not(feature = "serve"))]
pub fn serve(_: Serve, _: &Path, _: &Printer) -> Result<Exit, Error> {
    Err(super::not_built("command serve"))
}

/// Serves until a signal ends it.
#[cfg(feature = "serve")]
pub fn serve(args: Serve, dir: &Path, printer: &Printer) -> Result<Exit, Error> {
    use roofgap_serve::{Limits, ServeProps, Server, Token};
    let token_file = args
        .token_file
        .or_else(state_file)
        .ok_or_else(|| Error::new("neither XDG_STATE_HOME nor HOME is set; name a file with --token-file"))?;
    let (token, new) = Token::open(&token_file)?;
    let text = token.text().to_owned();
    let server = Server::bind(ServeProps {
        runs: std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()),
        listen: args.listen,
        token,
        hosts: args.host.clone(),
        behind_tls_proxy: args.behind_tls_proxy,
        version: env!("CARGO_PKG_VERSION").into(),
        limits: Limits::default(),
        cancel: super::signals::cancel_on_signal()?,
    })?;
    let address = server.address();
    printer.text(&format!("http://{address}\n"))?;
    if new {
        // No client can connect to every address, nor past the proxy.
        let place = match args.host.first() {
            Some(proxy) if args.behind_tls_proxy => format!("https://{proxy}"),
            _ => format!("http://{address}"),
        };
        printer.progress(&format_args!("token: {text}\nin a browser: {place}/login?token={text}"));
    }
    printer.progress(&format_args!("the token is in {}", token_file.display()));
    roofgap_serve::serve(server)?;
    Ok(Exit::Done)
}

/// Returns the file of the token in the state folder of the user.
#[cfg(feature = "serve")]
fn state_file() -> Option<std::path::PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(std::path::PathBuf::from);
    let folder = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(folder.join("roofgap/serve-token"))
}
