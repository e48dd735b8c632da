//! Responses of the REST API, as the server writes them and clients read them. No server, no client and no
//! flowgraph: `fxgraph-web` fills these types, `fxgraph-cli` shows them.
//!
//! Doc comments are descriptions in the OpenAPI document. Bodies of requests are JSON objects with parameters of
//! kinds, whose types only the kinds know.
//!
//! A client accepts unknown fields, and takes a missing `Option` as `None`, so that it reads responses of other
//! versions. A field that is added later is an `Option`, or has `#[serde(default)]` and `#[schema(required)]`.
//!
//! # Layout
//! - [`flowgraph`]: state, graph and configuration of the flowgraph
//! - [`blocks`]: parameters, statistics and faults of blocks
//! - [`ports`]: types of frames
//! - [`kinds`]: kinds of blocks
//! - [`changes`]: live updates, swaps, updates of the flowgraph
//! - [`frames`]: headers and payloads
//! - [`views`]: views of frames
//! - [`history`]: values of gauges over minutes and hours
//! - [`recordings`]: recorders and their recordings
//! - [`shadows`]: shadows of blocks
//! - [`events`]: events of the run
//! - [`parts`]: parts of a deployment
//! - [`problem`]: errors of requests
#![forbid(unsafe_code)]

pub mod blocks;
pub mod changes;
pub mod events;
pub mod flowgraph;
pub mod frames;
pub mod history;
pub mod kinds;
pub mod parts;
pub mod ports;
pub mod problem;
pub mod recordings;
pub mod shadows;
pub mod views;
