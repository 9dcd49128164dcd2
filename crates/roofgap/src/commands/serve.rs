//! `roofgap serve`: serves the runs over HTTP.

use super::THIS_PROGRAM;
use super::signals::cancel_on_signal;
use crate::args::Serve;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_serve::{Limits, Permissions, ServeProps, Server, TlsFiles, Token, serve};
use std::path::PathBuf;
use std::time::Duration;

/// Serves until a signal ends it.
pub fn run(args: Serve, printer: &Printer) -> Result<Exit, Error> {
    let token_file = args
        .token_file
        .or_else(state_file)
        .ok_or_else(|| Error::new("neither XDG_STATE_HOME nor HOME is set; name a file with --token-file"))?;
    let (token, new) = Token::open(&token_file)?;
    let text = token.text().to_owned();
    let tls = args.tls_cert.zip(args.tls_key);
    let scheme = if tls.is_some() { "https" } else { "http" };
    // A certificate is for a name, and no client can connect to every address.
    let named = tls.is_some() || args.listen.ip().is_unspecified();
    let name = args.host.first().filter(|_| named).cloned();
    let proxied = args.host.first().filter(|_| args.behind_tls_proxy).cloned();
    let server = Server::bind(ServeProps {
        runs: absolute(args.base.dir),
        listen: args.listen,
        token,
        hosts: args.host,
        tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
        behind_tls_proxy: args.behind_tls_proxy,
        permissions: Permissions { run: args.allow_run, command: args.allow_command },
        config_dir: args.config_dir.map(absolute),
        executable: THIS_PROGRAM.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        limits: Limits {
            connections: args.max_connections.max(1),
            queue: args.max_queue,
            client: Duration::from_secs(args.client_timeout.max(1)),
            ..Limits::default()
        },
        cancel: cancel_on_signal()?,
    })?;
    let address = server.address();
    printer.text(&format!("{scheme}://{address}\n"))?;
    if new {
        let place = match (proxied, name) {
            (Some(proxy), _) => format!("https://{proxy}"),
            (None, Some(name)) => format!("{scheme}://{name}:{}", address.port()),
            (None, None) => format!("{scheme}://{address}"),
        };
        printer.progress(&format_args!("token: {text}\nin a browser: {place}/login?token={text}"));
    }
    printer.progress(&format_args!("the token is in {}", token_file.display()));
    serve(server)?;
    Ok(Exit::Done)
}

/// Returns the file of the token in the state folder of the user.
fn state_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(folder.join("roofgap/serve-token"))
}

/// Returns a path that does not depend on the current folder.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
