//! `roofgap serve`: serves the runs over HTTP.

use super::signals::cancel_on_signal;
use crate::args::Serve;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_serve::{Limits, ServeProps, Server, Token, serve};
use std::path::{Path, PathBuf};

/// Serves until a signal ends it.
pub fn run(args: Serve, dir: &Path, printer: &Printer) -> Result<Exit, Error> {
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
        cancel: cancel_on_signal()?,
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
    serve(server)?;
    Ok(Exit::Done)
}

/// Returns the file of the token in the state folder of the user.
fn state_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(folder.join("roofgap/serve-token"))
}
