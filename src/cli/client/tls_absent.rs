//! In place of TLS in a program without the feature `tls`.

use crate::failure::Failure;
use std::path::Path;
use ureq::Error;
use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;

/// Help for a failed TLS handshake, which does not happen.
pub(super) const HELP: [&str; 2] = [""; 2];

/// Rejects connections over TLS.
pub(super) fn configure(
    config: ConfigBuilder<AgentScope>,
    ca: Option<&Path>,
    url: &str,
) -> Result<ConfigBuilder<AgentScope>, Failure> {
    if ca.is_some() || url.starts_with("https:") {
        return Err(Failure::absent("tls", "a connection over HTTPS"));
    }
    Ok(config)
}

pub(super) fn has_failed(_: &Error) -> bool {
    false
}
