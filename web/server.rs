//! The socket, connections and their limits.

use crate::api;
use crate::app::App;
use crate::pages;
use crate::problem;
use axum::Router;
use axum::middleware::from_fn;
use fxgraph::Control;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio_io_timeout::TimeoutStream;

/// Threads that serve requests.
const THREADS: usize = 2;
/// Priority of these threads, as `nice` has it: blocks come first where cores are scarce.
const NICENESS: i32 = 10;
/// Connections at once; more wait in the system's queue until one ends.
const CONNECTIONS: usize = 128;
/// Time for the head of a request, and for the next request on a connection that is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which a client has to take some of what is sent to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that answers under way get at the end of the run.
const GRACE: Duration = Duration::from_millis(500);
/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
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
}

impl Server {
    /// Takes the address.
    pub fn bind(options: &Options) -> Result<Self, BindError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(THREADS)
            .thread_name("http")
            .on_thread_start(yield_to_blocks)
            .enable_all()
            .build()
            .map_err(BindError::Threads)?;
        let refused = |said| BindError::Address { address: options.listen, said };
        let listener = runtime.block_on(TcpListener::bind(options.listen)).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { runtime, listener, address })
    }

    /// Where it is found: `http://127.0.0.1:8080`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves `control` until the result is dropped.
    #[must_use]
    pub fn serve(self, control: Control) -> Serving {
        let Self { runtime, listener, .. } = self;
        let app = App::new(control);
        let router = router(app.clone());
        runtime.spawn(async move { app.live.watch(&app.control).await });
        let (stop, stopped) = oneshot::channel();
        let (done, ended) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            accept(listener, router, stopped).await;
            // Nobody waits for it any more if the grace is over.
            let _ = done.send(());
        });
        Serving { runtime: Some(runtime), stop: Some(stop), ended }
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

/// Everything that is served.
fn router(app: App) -> Router {
    api::router(app).merge(pages::router()).layer(from_fn(problem::explain))
}

/// Accepts connections until `stopped`, then waits for the answers under way.
async fn accept(listener: TcpListener, router: Router, mut stopped: oneshot::Receiver<()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            _ = &mut stopped => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, watcher) = (router.clone(), graceful.watcher());
                tokio::spawn(async move {
                    converse(stream, router, watcher).await;
                    drop(place);
                });
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

/// Serves one client.
async fn converse(stream: TcpStream, router: Router, watcher: Watcher) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!("a connection ended early: {error}");
    }
}
