//! Connections and their limits.
//!
//! TLS: the certificate, its key, and the handshake.

use crate::guard::Hosts;
use crate::handlers::router;
use crate::queue::Queue;
use crate::{AppState, Limits, ServeProps, TlsFiles};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use roofgap_base::error::Error;
use roofgap_collect::child::Cancel;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, fs, io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Interval between checks of the cancellation flag.
const TICK: Duration = Duration::from_millis(100);
/// Time for open connections to end when the server does.
const GOODBYE: Duration = Duration::from_secs(2);
/// Connections that the system keeps until there is a place for them.
const BACKLOG: i32 = 1024;
/// Threads for files and analyses.
const BLOCKING_THREADS: usize = 16;

/// A server that listens.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    props: ServeProps,
    hosts: Hosts,
    tls: Option<TlsAcceptor>,
    queue: Arc<Queue>,
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server")
            .field("address", &self.address)
            .field("props", &self.props)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Listens on the address of the settings.
    ///
    /// # Errors
    /// Fails for an address that is taken, or that other machines can reach without encryption, for a certificate or key that
    /// cannot be used, and for a folder of runs that is not writable or that another server has.
    pub fn bind(props: ServeProps) -> Result<Self, Error> {
        let listen = props.listen;
        if !listen.ip().is_loopback() && !props.behind_tls_proxy && props.tls.is_none() {
            return Err(Error::new(format!(
                "{listen} can be reached from other machines, and connections are not encrypted; listen on 127.0.0.1, add --tls-cert \
                 and --tls-key, or put a proxy with TLS in front and add --behind-tls-proxy"
            )));
        }
        if listen.ip().is_unspecified() && props.hosts.is_empty() {
            let why = "is every address of this machine; name the host that clients use with --host";
            return Err(Error::new(format!("{listen} {why}")));
        }
        let tls = props.tls.as_ref().map(acceptor).transpose()?;
        let failed = |error: std::io::Error| Error::new(format!("cannot listen on {listen}: {error}"));
        let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
        // Connections that wait for a place. The default is too short for a burst.
        socket2::SockRef::from(&listener).listen(BACKLOG).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let queue = Queue::open(&props).map_err(Error::io("use the folder of the runs", &props.runs))?;
        Ok(Server { hosts: Hosts(hosts(&props, address.ip())), listener, address, props, tls, queue })
    }

    /// Returns the address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Lists the names under which the server is reached.
fn hosts(props: &ServeProps, ip: IpAddr) -> Vec<String> {
    let mut hosts = props.hosts.clone();
    if ip.is_loopback() {
        hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
    }
    if !ip.is_unspecified() {
        hosts.push(match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
    }
    hosts
}

/// Serves until the settings are cancelled; then interrupts the running session and waits for it.
///
/// # Errors
/// Fails if there are no threads for it.
pub fn serve(server: Server) -> Result<(), Error> {
    let (props, queue) = (server.props, server.queue);
    let not_started = |error: std::io::Error| Error::new(format!("cannot start the server: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(not_started)?;
    let worker = {
        let queue = queue.clone();
        std::thread::spawn(move || queue.work())
    };
    let (cancel, limits) = (props.cancel.clone(), props.limits);
    let router = router(AppState::new(props, server.hosts, queue.clone()));
    let served = runtime.block_on(async {
        let listener = TcpListener::from_std(server.listener).map_err(not_started)?;
        accept(&listener, &router, server.tls.as_ref(), limits, &cancel).await;
        Ok(())
    });
    queue.end();
    // A session that was interrupted writes its reports first; a second signal kills it.
    while !worker.is_finished() {
        if cancel.is_forced() {
            queue.end();
        }
        std::thread::sleep(TICK);
    }
    runtime.shutdown_timeout(GOODBYE);
    served
}

/// Accepts connections until the cancellation. One over the limit waits in the queue of the system.
async fn accept(
    listener: &TcpListener,
    router: &Router,
    tls: Option<&TlsAcceptor>,
    limits: Limits,
    cancel: &Cancel,
) {
    let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    loop {
        let accepted = tokio::select! {
            accepted = next(listener, &places) => accepted,
            () = cancelled(cancel) => return,
        };
        let Some((stream, place)) = accepted else {
            // Out of file descriptors, or a connection that is gone already.
            tokio::time::sleep(TICK).await;
            continue;
        };
        let (router, tls) = (router.clone(), tls.cloned());
        tokio::spawn(async move {
            let stream = Unstalled::new(stream, limits.client);
            match tls {
                None => answer(stream, router, limits).await,
                // A client that is slow or does not speak TLS only loses its place.
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(limits.client, tls.accept(stream)).await {
                        answer(stream, router, limits).await;
                    }
                }
            }
            drop(place);
        });
    }
}

/// Answers the requests of a connection.
async fn answer<S>(stream: S, router: Router, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.client);
    // An error is the client's: it left, or it was too slow.
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    let (stream, _) = listener.accept().await.ok()?;
    Some((stream, place))
}

async fn cancelled(cancel: &Cancel) {
    while !cancel.is_requested() {
        tokio::time::sleep(TICK).await;
    }
}

/// A connection that fails if the client takes nothing of an answer for too long.
#[derive(Debug)]
struct Unstalled<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits for the client.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Unstalled<S> {
    fn new(stream: S, limit: Duration) -> Self {
        Unstalled { stream, limit, deadline: None }
    }

    /// Passes the result of a write on; a pending one fails after the limit.
    fn within<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.deadline = None;
            return result;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, result)
    }
}

/// Reads the certificate and its key.
///
/// # Errors
/// Fails for a key that everyone can read, for files that hold none, and for a key of another certificate.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let chain = certificates(&files.cert)?;
    let key = key(&files.key)?;
    let refused = |error: tokio_rustls::rustls::Error| {
        let (cert, key) = (files.cert.display(), files.key.display());
        Error::new(format!("cannot use the certificate {cert} with the key {key}: {error}"))
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn malformed(path: &Path, wanted: &'static str) -> impl FnOnce(pem::Error) -> Error {
    move |error| {
        let why = match error {
            pem::Error::NoItemsFound => "it has none".to_owned(),
            error => error.to_string(),
        };
        Error::new(format!("{} must hold {wanted}: {why}", path.display()))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    const WANTED: &str = "a certificate in PEM form";
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(malformed(path, WANTED))?;
    if chain.is_empty() {
        return Err(malformed(path, WANTED)(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = fs::read(path).map_err(Error::io("read", path))?;
    // A group of its own for keys is usual.
    if fs::metadata(path).is_ok_and(|facts| facts.mode() & 0o007 != 0) {
        let path = path.display();
        return Err(Error::new(format!("the key {path} can be read by everyone; `chmod 600` it")));
    }
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(malformed(path, "a private key in PEM form without a password"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_certificate_needs_its_own_key_that_not_everyone_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let files = TlsFiles { cert: cert.clone(), key: key.clone() };
        let made = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (own, other) = (made(), made());
        let error = || acceptor(&files).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error().starts_with("cannot read "));
        write(&cert, &own.cert.pem(), 0o644);
        write(&key, &own.signing_key.serialize_pem(), 0o640);
        assert!(acceptor(&files).is_ok());
        write(&key, &own.signing_key.serialize_pem(), 0o644);
        assert!(error().contains("can be read by everyone"));
        write(&key, &other.signing_key.serialize_pem(), 0o600);
        assert!(error().starts_with("cannot use the certificate "));
        write(&key, &own.cert.pem(), 0o600);
        assert!(error().contains("key.pem") && error().contains("it has none"));
        write(&cert, "no certificate", 0o644);
        assert!(error().contains("cert.pem") && error().contains("it has none"));
    }
}
