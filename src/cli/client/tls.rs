//! Certificates that the client trusts.

use super::FILE_BYTES;
use crate::failure::Failure;
use fxgraph::files::read_awaited;
use std::path::Path;
use std::sync::Arc;
use ureq::Error;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;

/// Help for a failed TLS handshake.
pub(super) const HELP: [&str; 2] = [
    "trust a certificate file with `--ca FILE`",
    "use http://... for a flowgraph that runs without `--tls-cert`",
];

/// Configures a client that connects to `url` and trusts the certificates in the file `ca`, or those of the system.
pub(super) fn configure(
    config: ConfigBuilder<AgentScope>,
    ca: Option<&Path>,
    url: &str,
) -> Result<ConfigBuilder<AgentScope>, Failure> {
    let roots = match ca {
        Some(path) => certificates(path)?,
        None if url.starts_with("https:") => of_the_system(),
        None => Vec::new(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(provider);
    Ok(config.tls_config(tls.build()))
}

/// Whether the TLS handshake failed.
pub(super) fn has_failed(error: &Error) -> bool {
    match error {
        Error::Io(error) => {
            matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>())
        }
        Error::Tls(_) | Error::Rustls(_) => true,
        _ => false,
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let text = read_awaited(path, FILE_BYTES).map_err(|error| {
        Failure::because(&format!("cannot read the certificates `{}`", path.display()), &error)
    })?;
    let items = parse_pem(&text).filter_map(Result::ok);
    let certificates: Vec<_> = items
        .filter_map(|item| if let PemItem::Certificate(one) = item { Some(one) } else { None })
        .collect();
    if certificates.is_empty() {
        return Err(Failure::failed(format!("`{}` contains no certificate (PEM)", path.display())));
    }
    Ok(certificates)
}

/// Certificates that the system trusts; unreadable ones are skipped.
fn of_the_system() -> Vec<Certificate<'static>> {
    let certificates = rustls_native_certs::load_native_certs().certs;
    certificates.iter().map(|one| Certificate::from_der(one).to_owned()).collect()
}
