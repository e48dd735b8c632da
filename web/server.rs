//! The socket, connections and their limits.

use crate::api;
use crate::app::{App, Permission};
use crate::connections::{self, Connection, Connections};
use crate::guard::{self, Guard, Peer, Rates, Token};
use crate::manual;
use crate::pages;
use crate::parser_errors::Explained;
use crate::problem;
use crate::taps::TAPS;
use crate::tls::Tls;
use axum::Router;
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
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;

/// Threads that serve requests.
const THREADS: usize = 2;
/// Priority of these threads, as `nice` has it: blocks come first where cores are scarce.
const NICENESS: i32 = 10;
/// Time for the head of a request, and for the next request on a connection that is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which a client has to take some of what is sent to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that answers under way get at the end of the run.
const GRACE: Duration = Duration::from_millis(500);
/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// Largest body of a request, in bytes.
const BODY_BYTES: usize = 1024 * 1024;
/// Time for a request, its body included; a stream of events is answered when it begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// What clients have to know.
    pub token: Option<Token>,
    /// Certificate and key, to serve over TLS.
    pub tls: Option<Tls>,
    /// Origins whose pages may ask: `https://board.example`.
    pub cors_origins: Vec<String>,
    /// What clients may change.
    pub permission: Permission,
    /// Directory below which clients may name files to read.
    pub read_files: Option<PathBuf>,
    /// Directory below which clients may name files to write.
    pub write_files: Option<PathBuf>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {}", reason(.said))]
    Address {
        /// Where to listen.
        address: SocketAddr,
        /// What the system said.
        said: io::Error,
    },
    /// Anyone could stop the flowgraph.
    #[error(
        "other machines can reach {0}: give a token that clients have to know (`--token-file`)"
    )]
    Open(SocketAddr),
    /// An origin is none.
    #[error("`{0}` is no origin of pages: give it like https://board.example")]
    Origin(String),
    /// A directory for files of clients cannot be used.
    #[error("clients cannot use files below `{}`: {said}", path.display())]
    Files {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        said: io::Error,
    },
    /// The system gave no threads.
    #[error("no threads to serve requests")]
    Threads(#[source] io::Error),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; port 0 takes any free one".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges".to_owned(),
        _ => error.to_string(),
    }
}

/// A socket that listens; clients that connect wait until it serves.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
    tls: Option<Tls>,
    permission: Permission,
    files: ClientFiles,
}

/// Files below `directory`.
fn files(directory: &Path) -> Result<Files, BindError> {
    let below = directory.canonicalize().and_then(|directory| Files::below(&directory));
    below.map_err(|said| BindError::Files { path: directory.to_owned(), said })
}

impl Server {
    /// Takes the address.
    pub fn bind(options: Options) -> Result<Self, BindError> {
        let is_local = options.listen.ip().is_loopback();
        if !is_local && options.token.is_none() {
            return Err(BindError::Open(options.listen));
        }
        let origins = options.cors_origins.into_iter().map(origin).collect::<Result<_, _>>()?;
        let files = ClientFiles {
            read: options.read_files.as_deref().map(files).transpose()?,
            write: options.write_files.as_deref().map(files).transpose()?,
        };
        let guard = Guard { is_local, token: options.token, origins, rates: Rates::default() };
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(THREADS + TAPS)
            .thread_name("http")
            .on_thread_start(yield_to_blocks)
            .enable_all()
            .build()
            .map_err(BindError::Threads)?;
        let refused = |said| BindError::Address { address: options.listen, said };
        let listener = runtime.block_on(TcpListener::bind(options.listen)).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let (tls, permission) = (options.tls, options.permission);
        Ok(Self { runtime, listener, address, guard, tls, permission, files })
    }

    /// Where it is found: `http://127.0.0.1:8080`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves `control` until the result is dropped. From now on its changes may name only the files that clients may.
    pub fn serve(self, control: Control) -> io::Result<Serving> {
        let Self { runtime, listener, guard, tls, permission, files, .. } = self;
        control.limit_files(files)?;
        let app = App::new(control, permission);
        let router = router(app.clone(), guard);
        let acceptor = tls.as_ref().map(Tls::acceptor);
        runtime.spawn(async move { app.live.watch(&app.control, &app.events).await });
        let (stop, stopped) = oneshot::channel();
        let (done, ended) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            accept(listener, acceptor, router, stopped).await;
            // Nobody waits for it any more if the grace is over.
            let _ = done.send(());
        });
        Ok(Serving { runtime: Some(runtime), stop: Some(stop), ended })
    }
}

/// Lowers the priority of the thread that calls; on other systems it would be that of the process.
fn yield_to_blocks() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!("the threads that serve requests keep their priority: {error}");
    }
}

/// A server at work. Dropping it lets answers under way come to their end, for a moment, and ends it.
pub struct Serving {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Clients that take longer are cut off.
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

/// Everything that is served, behind the guard.
fn router(app: App, guard: Guard) -> Router {
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
    // Pages of other sites cannot embed what is served here.
    let keep_here = SetResponseHeaderLayer::overriding(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    // The last layer is the first that a request meets.
    api::router(app)
        .layer(from_fn_with_state(Arc::clone(&guard), guard::ask_token))
        .merge(api::description_router())
        .merge(manual::router())
        .merge(pages::router())
        .layer(RequestBodyLimitLayer::new(BODY_BYTES))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_TIMEOUT))
        .layer(cors)
        .layer(from_fn_with_state(guard, guard::admit))
        .layer(from_fn(problem::explain))
        .layer(never_sniff)
        .layer(keep_here)
}

/// Accepts connections until `stopped`, then waits for the answers under way.
async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    mut stopped: oneshot::Receiver<()>,
) {
    let connections = Arc::<Connections>::default();
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let client = connections::client(address.ip());
                let handle = stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
                let connection = Arc::new(connections.begin(client, handle.ok()));
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
                // Or a queue of connections would be accepted in one go, and those that have sent a request would
                // have to end for the ones behind them before they are read.
                tokio::task::yield_now().await;
            }
            // Out of files, or the client is gone already: the next one may do better.
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Everything that is served, to one connection: its requests say whose they are. A layer on the router would do the
/// same, but costs a copy of every route; a client that connects again and again must not cost that.
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
        Ok(Err(error)) => tracing::debug!("a client did not agree on TLS: {error}"),
        Err(_) => tracing::debug!("a client took too long to agree on TLS"),
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
