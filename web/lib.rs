//! HTTP for a running flowgraph: REST, events, metrics, and pages that show them.
//!
//! A [`Server`] is bound before the flowgraph starts, so that a port in use is an error while nothing
//! runs yet; it then serves a [`Control`](fxgraph::Control) on threads of its own until the
//! [`Serving`] is dropped. What it does wrong, or what is done to it, never reaches the data path: it
//! reads figures that are plain shared state, and its threads have a lower priority than the blocks'.
//!
//! # Layout
//! - [`server`]: the socket, and what serves a connection
//! - `connections`: how many connections there may be, and which one ends for another
//! - `parser_errors`: errors of the HTTP parser as problem documents
//! - `api`: what stands under `/api/v1`, with its OpenAPI document
//! - `live`: rates between two looks at the figures
//! - `taps`: frames that run by, for clients that come and go
//! - `views`: what a frame looks like, in a few thousand numbers
//! - `verdict`: what limits the flowgraph, and what it has to spare
//! - `problem`: errors as RFC 9457 problem documents
//! - `metrics`, `exposition`: figures for Prometheus, and how they are encoded
//! - [`dashboard`]: what to watch of a flowgraph, for Prometheus and Grafana
//! - [`guard`], [`tls`]: who may ask, how often, and unheard by others
//! - `pages`: the page at `/` and the one to try the API; `manual`: the manual at `/docs/`

mod api;
mod app;
mod connections;
pub mod dashboard;
mod exposition;
pub mod guard;
mod live;
mod manual;
mod metrics;
mod pages;
mod parser_errors;
mod problem;
pub mod server;
mod shares;
mod taps;
pub mod tls;
mod verdict;
mod views;

pub use app::Permission;
pub use guard::{Token, TokenError};
pub use metrics::{Family, metric_families};
pub use server::{BindError, Options, Server, Serving};
pub use tls::{Tls, TlsError};
