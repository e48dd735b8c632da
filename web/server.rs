//! Sockets, connections and their limits.

use crate::app::{App, Permission};
use crate::bodies::Bodies;
use crate::connections::{self, Connection, Connections};
use crate::fleet::{self, Find, Fleet};
use crate::guard::{self, Guard, Peer, Rates, Token};
use crate::handlers;
use crate::pages;
use crate::parser_errors::Explained;
use crate::problem;
use crate::taps::TAPS;
use crate::tls::{Tls, TlsAcceptor};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use fxgraph::Control;
use fxgraph::access::ClientFiles;
use fxgraph::files::Files;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tower_http::cors::CorsLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use utoipa::openapi::OpenApi;

/// Threads that serve requests.
const THREADS: usize = 2;
/// Niceness of these threads, so that blocks come first when cores are scarce.
const NICENESS: i32 = 10;
/// Connections that wait until the server accepts them; the system may have a lower limit.
const BACKLOG: u32 = 4096;
/// Connections that are accepted before other work of the server has its turn.
const ACCEPTED: u32 = 32;
/// Time limit for the head of a request, and for the next request on a kept connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a client to accept sent bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to finish responses at the end of the run.
const GRACE: Duration = Duration::from_millis(500);
/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// Time limit for a request with its body; a stream of events counts as answered when it begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Token that clients must send.
    pub token: Option<Token>,
    /// Certificate and key, to serve over TLS.
    pub tls: Option<Tls>,
    /// Origins whose pages may send requests: `https://board.example`.
    pub cors_origins: Vec<String>,
    /// Permission of clients.
    pub permission: Permission,
    /// Directory in which clients may name files to read.
    pub read_files: Option<PathBuf>,
    /// Directory in which clients may name files to write.
    pub write_files: Option<PathBuf>,
    /// Directory with code that clients on this machine may run.
    pub code: Option<PathBuf>,
    /// Largest body of a request, in bytes.
    pub body_bytes: usize,
    /// Path and Markdown of the pages that the program adds to the manual; called when a client first asks for a page.
    pub manual: fn() -> BTreeMap<String, String>,
}

/// Error while starting the server.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {}", reason(.said))]
    Address {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        said: io::Error,
    },
    /// Other machines can reach the server, and no token is set.
    #[error("other machines can reach {0}: set a token with `--token-file`")]
    Open(SocketAddr),
    /// An origin is malformed.
    #[error("invalid origin `{0}`: give an origin like https://board.example")]
    Origin(String),
    /// A directory for files of clients cannot be used.
    #[error("clients cannot use files below `{}`: {said}", path.display())]
    Files {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        said: io::Error,
    },
    /// Clients could write the code that they may run.
    #[error("clients may write files below `{}`, which must not have the directory of `--code` in it, nor be in it", .0.display())]
    WrittenCode(PathBuf),
    /// The system cannot create threads.
    #[error("cannot create threads to serve requests")]
    Threads(#[source] io::Error),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the address is in use; port 0 selects a free port".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges".to_owned(),
        _ => error.to_string(),
    }
}

/// Listening socket; clients that connect wait until it serves.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
    tls: Option<Tls>,
    permission: Permission,
    files: ClientFiles,
    body_bytes: usize,
    manual: fn() -> BTreeMap<String, String>,
}

/// Opens the listening socket.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Opens the directory for files of clients.
fn files(directory: &Path) -> Result<Files, BindError> {
    let below = directory.canonicalize().and_then(|directory| Files::below(&directory));
    below.map_err(|said| BindError::Files { path: directory.to_owned(), said })
}

impl Server {
    /// Binds the address.
    pub fn bind(options: Options) -> Result<Self, BindError> {
        let is_local = options.listen.ip().is_loopback();
        if !is_local && options.token.is_none() {
            return Err(BindError::Open(options.listen));
        }
        let origins = options.cors_origins.into_iter().map(origin).collect::<Result<_, _>>()?;
        let files = ClientFiles {
            read: options.read_files.as_deref().map(files).transpose()?,
            write: options.write_files.as_deref().map(files).transpose()?,
            code: options.code.as_deref().map(files).transpose()?,
        };
        let roots =
            |files: &Option<Files>| files.as_ref().and_then(Files::root).map(Path::to_owned);
        if let (Some(written), Some(code)) = (roots(&files.write), roots(&files.code))
            && (written.starts_with(&code) || code.starts_with(&written))
        {
            return Err(BindError::WrittenCode(written));
        }
        let bodies = Bodies::new(options.body_bytes);
        let guard =
            Guard { is_local, token: options.token, origins, rates: Rates::default(), bodies };
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(THREADS + TAPS)
            .thread_name("http")
            .on_thread_start(yield_to_blocks)
            .enable_all()
            .build()
            .map_err(BindError::Threads)?;
        let rejected = |said| BindError::Address { address: options.listen, said };
        let listener = runtime.block_on(async { listen(options.listen) }).map_err(rejected)?;
        let address = listener.local_addr().map_err(rejected)?;
        let Options { tls, permission, body_bytes, manual, .. } = options;
        Ok(Self { runtime, listener, address, guard, tls, permission, files, body_bytes, manual })
    }

    /// URL of the server: `http://127.0.0.1:8080`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves `control` until the result is dropped. From now on, changes may name only files that clients may use.
    pub fn serve(self, control: Control) -> io::Result<Serving> {
        let Self { runtime, listener, guard, tls, permission, files, body_bytes, manual, .. } =
            self;
        control.limit_files(files)?;
        let app = App::new(control, permission, body_bytes);
        let api = handlers::router(app.clone());
        let router = router(api, handlers::of_flowgraph(), manual, guard);
        runtime.spawn(async move { app.live.watch(&app.control, &app.events, &app.history).await });
        Ok(begin(runtime, listener, tls.as_ref(), router))
    }

    /// Serves the parts that `find` returns as one flowgraph called `name`, until the result is dropped.
    #[must_use]
    pub fn serve_fleet(self, name: String, find: Find) -> Serving {
        let Self { runtime, listener, guard, tls, permission, manual, .. } = self;
        let fleet = Fleet::new(name, find, permission);
        let router = router(fleet::router(fleet.clone()), fleet::description(), manual, guard);
        // The first client gets the answers of the parts, not those of a fleet that has not asked them yet.
        runtime.block_on(fleet.look());
        runtime.spawn(async move { fleet.watch().await });
        begin(runtime, listener, tls.as_ref(), router)
    }
}

/// Serves `router` on the threads of `runtime`.
fn begin(runtime: Runtime, listener: TcpListener, tls: Option<&Tls>, router: Router) -> Serving {
    let acceptor = tls.map(Tls::acceptor);
    let (stop, stopped) = oneshot::channel();
    let (done, ended) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        accept(listener, acceptor, router, stopped).await;
        // The receiver is gone if the grace period is over.
        let _ = done.send(());
    });
    Serving { runtime: Some(runtime), stop: Some(stop), ended }
}

/// Lowers the priority of the calling thread; on other systems than Linux this would affect the process.
fn yield_to_blocks() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!("cannot lower the priority of the server's threads: {error}");
    }
}

/// A running server. Dropping it ends the server, after a short time to finish responses.
pub struct Serving {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Slower clients are disconnected.
        let _ = self.ended.recv_timeout(GRACE);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn origin(text: String) -> Result<HeaderValue, BindError> {
    let authority = text.split_once("://").map(|(_, authority)| authority);
    let is_origin =
        authority.is_some_and(|authority| !authority.is_empty() && !authority.contains('/'));
    is_origin.then(|| HeaderValue::from_str(&text).ok()).flatten().ok_or(BindError::Origin(text))
}

/// Router of everything served, with the paths that need the token in `api` and their `description`, behind the guard.
fn router(
    api: Router,
    description: OpenApi,
    manual: fn() -> BTreeMap<String, String>,
    guard: Guard,
) -> Router {
    let cors = CorsLayer::new()
        .allow_origin(guard.origins.clone())
        .allow_methods([Method::GET, Method::PUT, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            HeaderName::from_static("last-event-id"),
        ]);
    let guard = Arc::new(guard);
    let never_sniff = SetResponseHeaderLayer::overriding(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Pages of other sites cannot embed these resources.
    let keep_here = SetResponseHeaderLayer::overriding(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    // The layer added last is the first that a request passes.
    api.layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&guard), guard::ask_token))
        .merge(handlers::description_router(description))
        .merge(pages::router(manual))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_TIMEOUT))
        .layer(cors)
        .layer(from_fn_with_state(guard, guard::admit))
        .layer(from_fn(problem::explain))
        .layer(never_sniff)
        .layer(keep_here)
}

/// Accepts connections until `stopped`, then waits for unfinished responses.
async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    mut stopped: oneshot::Receiver<()>,
) {
    let connections = Arc::new(Connections::new(connections::open_files()));
    let graceful = GracefulShutdown::new();
    let mut accepted_now = 0;
    loop {
        let accepted = tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let client = connections::client(address.ip());
                let handle = stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
                let handle = handle.ok();
                // A client that opens and closes many connections takes no place.
                if handle.as_ref().is_some_and(connections::has_ended) {
                    continue;
                }
                let connection = Arc::new(connections.begin(client, handle));
                let service = OfConnection {
                    router: TowerToHyperService::new(router.clone()),
                    peer: Peer(client),
                    connection: Arc::clone(&connection),
                };
                let (tls, watcher) = (tls.clone(), graceful.watcher());
                tokio::spawn(async move {
                    tokio::select! {
                        () = greet(stream, tls, service, watcher) => {}
                        () = connection.ended() => {}
                    }
                });
                // Otherwise a burst of connections would be accepted at once, and connections with a request would
                // end for later ones before their request is read.
                accepted_now = (accepted_now + 1) % ACCEPTED;
                if accepted_now == 0 {
                    tokio::task::yield_now().await;
                }
            }
            // Out of file descriptors, or the client is gone: the next connection may succeed.
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Router for one connection, which adds the client to its requests. A layer on the router would do the same, but
/// copies every route for each connection.
#[derive(Clone)]
struct OfConnection {
    router: TowerToHyperService<Router>,
    peer: Peer,
    connection: Arc<Connection>,
}

impl Service<Request<Incoming>> for OfConnection {
    type Response = Response;
    type Error = Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let extensions = request.extensions_mut();
        extensions.insert(self.peer);
        extensions.insert(Arc::clone(&self.connection));
        self.router.call(request)
    }
}

/// Serves one client, over TLS if `tls` is given.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: OfConnection,
    watcher: Watcher,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = Box::pin(stream);
    let Some(tls) = tls else { return converse(stream, service, watcher).await };
    match timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => converse(stream, service, watcher).await,
        Ok(Err(error)) => tracing::debug!("TLS handshake failed: {error}"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: OfConnection,
    watcher: Watcher,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Explained::new(stream)), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!("a connection ended early: {error}");
    }
}
