//! Connections and their limits.

use crate::guard::Hosts;
use crate::handlers::router;
use crate::{AppState, Limits, ServeProps};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use roofgap_base::error::Error;
use roofgap_collect::child::Cancel;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;

/// Interval between checks of the cancellation flag.
const TICK: Duration = Duration::from_millis(100);
/// Time for open connections to end when the server does.
const GOODBYE: Duration = Duration::from_secs(2);
/// Connections that the system keeps until there is a place for them.
const BACKLOG: i32 = 1024;
/// Threads for files and analyses.
const BLOCKING_THREADS: usize = 16;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    props: ServeProps,
    hosts: Hosts,
}

impl Server {
    /// Listens on the address of the settings.
    ///
    /// # Errors
    /// Fails for an address that is taken, and for one that other machines can reach without encryption.
    pub fn bind(props: ServeProps) -> Result<Self, Error> {
        let listen = props.listen;
        if !listen.ip().is_loopback() && !props.behind_tls_proxy {
            return Err(Error::new(format!(
                "{listen} can be reached from other machines, and connections are not encrypted; listen on 127.0.0.1, or put \
                 a proxy with TLS in front and add --behind-tls-proxy"
            )));
        }
        if listen.ip().is_unspecified() && props.hosts.is_empty() {
            let why = "is every address of this machine; name the host that clients use with --host";
            return Err(Error::new(format!("{listen} {why}")));
        }
        let failed = |error: std::io::Error| Error::new(format!("cannot listen on {listen}: {error}"));
        let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
        // Connections that wait for a place. The default is too short for a burst.
        socket2::SockRef::from(&listener).listen(BACKLOG).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Server { hosts: Hosts(hosts(&props, address.ip())), listener, address, props })
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

/// Serves until the settings are cancelled.
///
/// # Errors
/// Fails if there are no threads for it.
pub fn serve(server: Server) -> Result<(), Error> {
    let Server { listener, props, hosts, .. } = server;
    let not_started = |error: std::io::Error| Error::new(format!("cannot start the server: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(not_started)?;
    let (cancel, limits) = (props.cancel.clone(), props.limits);
    let router = router(AppState::new(props, hosts));
    let served = runtime.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(not_started)?;
        accept(&listener, &router, limits, &cancel).await;
        Ok(())
    });
    runtime.shutdown_timeout(GOODBYE);
    served
}

/// Accepts connections until the cancellation. One over the limit waits in the queue of the system.
async fn accept(listener: &TcpListener, router: &Router, limits: Limits, cancel: &Cancel) {
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
        let router = router.clone();
        tokio::spawn(async move {
            answer(stream, router, limits).await;
            drop(place);
        });
    }
}

/// Answers the requests of a connection.
async fn answer(stream: TcpStream, router: Router, limits: Limits) {
    let stream = Unstalled { stream, limit: limits.client, deadline: None };
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
struct Unstalled {
    stream: TcpStream,
    limit: Duration,
    /// Runs while a write waits for the client.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
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

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Unstalled {
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
