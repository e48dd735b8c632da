//! In place of TLS in a program without the feature `tls`: no certificate can be used.

use std::io;
use std::path::Path;

/// Certificate chain with its private key.
#[derive(Clone, Debug)]
pub enum Tls {}

pub(crate) type TlsAcceptor = Tls;

/// The feature is off.
#[derive(Debug, thiserror::Error)]
#[error(
    "this program was built without `tls`, which `--tls-cert` needs; build fxgraph with `--features tls`"
)]
pub struct TlsError;

impl Tls {
    /// Returns the error.
    pub fn read(_: &Path, _: &Path) -> Result<Self, TlsError> {
        Err(TlsError)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        match *self {}
    }

    pub(crate) async fn accept<S>(&self, _: S) -> io::Result<S> {
        match *self {}
    }
}
