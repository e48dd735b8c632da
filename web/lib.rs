//! HTTP server for a running flowgraph: REST, events, metrics and a web page.
//!
//! A [`Server`] is bound before the flowgraph starts, so that a port in use is reported before anything runs.
//! It then serves a [`Control`](fxgraph::Control) on its own threads until the [`Serving`] is dropped. Errors
//! of the server and load from clients never reach the data path: the server reads shared statistics, and its
//! threads have a lower priority than those of the blocks.
//!
//! # Layout
//! - [`server`]: sockets and connections
//! - `connections`: limits on connections
//! - `parser_errors`: errors of the HTTP parser as problem documents
//! - `handlers`: handlers under `/api/v1`, and the OpenAPI description
//! - `live`: rates over the last second; `history`: values of gauges over minutes and hours
//! - `taps`: frames for clients; `prepared`: live updates in two steps
//! - `views`: reduction of a frame to a few thousand numbers
//! - [`fleet`]: the parts of a deployment as one flowgraph
//! - `verdict`: bottleneck and headroom of the flowgraph
//! - `problem`: errors as RFC 9457 problem documents
//! - `metrics`, `exposition`: metrics for Prometheus, and their encoding
//! - [`dashboard`]: alert rules for Prometheus, dashboard for Grafana
//! - [`guard`], [`tls`]: admission of requests, and encryption
//! - `pages`: the web page at `/`; `docs`: the manual at `/docs/` and Swagger UI at `/docs/api/`
//!
//! # Features
//! Without `manual` there is no `docs`, without `tls` certificates are rejected.

mod app;
mod bodies;
mod connections;
pub mod dashboard;
#[cfg(feature = "manual")]
mod docs;
mod event_counts;
mod exposition;
pub mod fleet;
pub mod guard;
mod handlers;
mod history;
mod live;
mod metrics;
mod pages;
mod parser_errors;
mod prepared;
mod problem;
pub mod server;
mod shares;
mod taps;
#[cfg_attr(not(feature = "tls"), path = "tls_absent.rs")]
pub mod tls;
mod verdict;
mod views;

pub use app::Permission;
pub use bodies::BODY_BYTES;
pub use guard::{Token, TokenError};
pub use handlers::flowgraph::starting;
pub use handlers::openapi;
pub use handlers::shadows::info as shadow_info;
pub use handlers::update::info as update_info;
pub use metrics::{Family, metric_families};
pub use server::{BindError, Options, Server, Serving};
pub use tls::{Tls, TlsError};
