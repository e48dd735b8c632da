//! Serving a running flowgraph over HTTP: the options of `run`.

use crate::failure::Failure;
use fxgraph_web::{Options, Server};
use std::net::SocketAddr;

/// Where and how to serve.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
pub struct Listen {
    /// Serves REST and a page while the flowgraph runs, like on 127.0.0.1:8080; port 0 takes any
    /// free one
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
}

impl Listen {
    /// The server, if one is wanted; nothing is answered yet.
    pub fn bind(&self) -> Result<Option<Server>, Failure> {
        let Some(listen) = self.listen else { return Ok(None) };
        let options = Options { listen };
        let server = Server::bind(&options)
            .map_err(|error| Failure::because("nothing was started", &error))?;
        Ok(Some(server))
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give it like 127.0.0.1:8080 or [::1]:8080".to_owned())
}
