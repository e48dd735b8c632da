//! TLS certificate and private key.

use fxgraph::files::read_regular;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub(crate) use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Maximum size of a PEM file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Certificate chain with its private key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// Error of certificate or key files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file contains no PEM item of the expected type.
    #[error("`{}` contains no {what} in PEM: {}", path.display(), reason(.said))]
    File {
        /// The file.
        path: PathBuf,
        /// Expected type: certificate or private key.
        what: &'static str,
        /// Error message.
        said: pem::Error,
    },
    /// Certificate and key do not match, or are of an unknown type.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(rustls::Error),
}

fn reason(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "none found".to_owned(),
        _ => "the file is damaged".to_owned(),
    }
}

impl Tls {
    /// Reads the certificate chain in the file `certificate` and the private key in the file `key`.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let wrong = |path: &Path, what, said| TlsError::File { path: path.to_owned(), what, said };
        let rejected = |said| wrong(certificate, "certificate", said);
        let read = |path: &Path| read_regular(path, MAX_BYTES).map_err(pem::Error::Io);
        let pem = read(certificate).map_err(rejected)?;
        let chain = CertificateDer::pem_slice_iter(&pem);
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(rejected)?;
        if chain.is_empty() {
            return Err(rejected(pem::Error::NoItemsFound));
        }
        let pem = read(key).map_err(|said| wrong(key, "private key", said))?;
        let key =
            PrivateKeyDer::from_pem_slice(&pem).map_err(|said| wrong(key, "private key", said))?;
        let mut config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(TlsError::Unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_rejects_files_without_certificate_or_with_another_key() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/certificates");
        let certificate = certificates.join("localhost.pem");
        let key = certificates.join("localhost.key");
        let others = certificates.join("other.pem");
        let empty = write("empty.pem", "");
        assert!(Tls::read(&certificate, &key).is_ok());
        let said =
            |certificate: &Path, key: &Path| Tls::read(certificate, key).unwrap_err().to_string();
        assert!(said(&empty, &key).ends_with("contains no certificate in PEM: none found"));
        assert!(said(&certificate, &empty).ends_with("contains no private key in PEM: none found"));
        assert!(said(&others, &key).starts_with("the certificate and its key cannot be used"));
        assert!(said(&directory.path().join("none"), &key).contains("No such file"));
        let large = write("large.pem", &"-".repeat(MAX_BYTES as usize + 1));
        assert!(said(&certificate, &large).contains("at most"));
        assert!(said(Path::new("/dev/zero"), &key).contains("not a regular file"));
    }
}
