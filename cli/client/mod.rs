//! A running flowgraph at the other end of a connection: REST, as its page uses it.
//!
//! # Layout
//! - [`answers`]: what it answers
//! - [`output`]: an output, by the name that a user gives it
//! - [`stream`]: server-sent events
//! - `problem`: what it says instead when it cannot

pub mod answers;
pub mod output;
mod problem;
pub mod stream;

use crate::failure::Failure;
use crate::serve::{USUAL_ADDRESS, with_host};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stream::Stream;
use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body, Error};

/// Time to reach the other end.
const CONNECT: Duration = Duration::from_secs(5);
/// Time for the head of an answer; the server gives up on a request after 30 s.
const ANSWER: Duration = Duration::from_secs(35);
/// Largest answer that is no array.
const MOST_BYTES: u64 = 64 << 20;

/// What to do where the two ends do not agree on TLS.
const TLS_HELP: [&str; 2] = [
    "`--ca FILE` trusts the certificates in a file",
    "a flowgraph without `--tls-cert` is at http://..., not https://...",
];

/// Which flowgraph to speak with.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Where the flowgraph is served (`fxgraph run FILE --listen`)
    #[arg(long, value_name = "URL", env = "FXGRAPH_CONNECT", default_value_t = format!("http://{USUAL_ADDRESS}"))]
    connect: String,

    /// File with the token that it asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// File with the certificates (PEM) to trust, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A client of one flowgraph.
pub struct Client {
    agent: Agent,
    /// `http://127.0.0.1:8080`, nothing behind it.
    url: String,
    token: Option<String>,
}

impl Connection {
    /// A client; nothing is asked yet.
    pub fn client(&self) -> Result<Client, Failure> {
        let url = match self.connect.trim_end_matches('/') {
            url if url.contains("://") => url.to_owned(),
            place => format!("http://{}", with_host(place)),
        };
        let is_url = |uri: Uri| {
            let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
            let has_place = uri.authority().is_some_and(|place| !place.as_str().ends_with(':'));
            is_known && has_place && matches!(uri.path(), "" | "/")
        };
        if !url.parse().is_ok_and(is_url) {
            let what = format!("`--connect {}` is no place of a flowgraph", self.connect);
            let help = "give it like localhost:8080 or https://host:8080";
            return Err(Failure::failed(with_help(&what, [help])));
        }
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let roots = match &self.ca {
            Some(path) => RootCerts::Specific(Arc::new(certificates(path)?)),
            None if url.starts_with("https:") => RootCerts::Specific(Arc::new(of_the_system())),
            None => RootCerts::Specific(Arc::default()),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A token goes where the user sends it, and nowhere else.
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .tls_config(tls)
            .build();
        Ok(Client { agent: config.into(), url, token })
    }
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::because(&format!("cannot read the token file `{}`", path.display()), &error)
    })?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::failed(format!("`{}` holds no token", path.display())));
    }
    Ok(token.to_owned())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let text = std::fs::read(path).map_err(|error| {
        Failure::because(&format!("cannot read the certificates `{}`", path.display()), &error)
    })?;
    let items = ureq::tls::parse_pem(&text).filter_map(Result::ok);
    let certificates: Vec<_> = items
        .filter_map(|item| if let PemItem::Certificate(one) = item { Some(one) } else { None })
        .collect();
    if certificates.is_empty() {
        return Err(Failure::failed(format!("`{}` holds no certificate (PEM)", path.display())));
    }
    Ok(certificates)
}

/// What the system trusts, as far as it can be read.
fn of_the_system() -> Vec<Certificate<'static>> {
    let certificates = rustls_native_certs::load_native_certs().certs;
    certificates.iter().map(|one| Certificate::from_der(one).to_owned()).collect()
}

impl Client {
    /// Where the flowgraph is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What stands at `path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.answer(Method::GET, path, None)?, path)
    }

    /// What the flowgraph answers to `method` at `path`, with `body` or without one.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        read(self.answer(method, path, body)?, path)
    }

    /// The bytes at `path`, as many as there are, and their headers.
    pub fn bytes(&self, path: &str) -> Result<(HeaderMap, Vec<u8>), Failure> {
        let (head, mut body) = self.answer(Method::GET, path, None)?.into_parts();
        let bytes = body.with_config().limit(u64::MAX).read_to_vec();
        Ok((head.headers, bytes.map_err(|error| self.lost(&error))?))
    }

    /// The events that are sent at `path`, as they come.
    pub fn follow(&self, path: &str) -> Result<Stream, Failure> {
        let answer = self.answer(Method::GET, path, None)?;
        Ok(Stream::new(answer.into_body().into_with_config().limit(u64::MAX).reader()))
    }

    fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = match body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                request
                    .body(body.to_string())
                    .map_err(Error::from)
                    .and_then(|request| self.agent.run(request))
            }
            None => {
                request.body(()).map_err(Error::from).and_then(|request| self.agent.run(request))
            }
        };
        let mut answer = answer.map_err(|error| self.unanswered(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let text = answer.body_mut().read_to_vec().unwrap_or_default();
        Err(problem::failure(answer.status(), &text))
    }

    fn lost(&self, error: &Error) -> Failure {
        Failure::because(&format!("the connection to {} was lost", self.url), error)
    }

    /// No answer came.
    fn unanswered(&self, error: &Error) -> Failure {
        let is_untrusted = |error: &io::Error| matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>());
        let help = match error {
            Error::Io(error) if is_untrusted(error) => TLS_HELP,
            Error::Tls(_) | Error::Rustls(_) => TLS_HELP,
            Error::Io(_) | Error::ConnectionFailed | Error::HostNotFound | Error::Timeout(_) => [
                "`fxgraph run FILE --listen` starts a flowgraph that answers",
                "`--connect URL` says where another one is",
            ],
            _ => return self.lost(error),
        };
        let reason = match error {
            Error::Io(error) if !is_untrusted(error) => error.kind().to_string(),
            other => other.to_string(),
        };
        let what = format!("no flowgraph answers at {}: {reason}", self.url);
        Failure::failed(with_help(&what, help))
    }
}

fn read<T: DeserializeOwned>(mut answer: Response<Body>, path: &str) -> Result<T, Failure> {
    let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
    let body = body.map_err(|error| Failure::because("the answer broke off", &error))?;
    serde_json::from_slice(&body).map_err(|_| {
        let what = format!("the answer at `{path}` cannot be read");
        Failure::failed(with_help(&what, ["is it served by an `fxgraph` of this version?"]))
    })
}

/// What an event `problem` of a stream says.
pub fn problem_of(data: &str) -> Failure {
    problem::failure(StatusCode::OK, data.as_bytes())
}

/// An error with what to do about it, as diagnostics are written.
pub fn with_help<'a>(what: &str, help: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = what.to_owned();
    for line in help {
        let _ = write!(text, "\n   = help: {line}");
    }
    text
}

/// `name` as a part of a path: names of blocks have brackets and dots.
pub fn in_path(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(connect: &str) -> Result<Client, Failure> {
        Connection { connect: connect.to_owned(), token_file: None, ca: None }.client()
    }

    #[test]
    fn places_of_flowgraphs_are_urls_without_a_path() {
        for good in ["http://127.0.0.1:8080", "https://host", "http://[::1]:80/", "host:80", "8080"]
        {
            assert!(client(good).is_ok(), "{good}");
        }
        for bad in ["", ":", "ftp://host", "http://", "http://host/api", "http://a b"] {
            assert!(client(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_keep_their_letters_in_paths() {
        assert_eq!(in_path("f[0].pfb"), "f%5B0%5D.pfb");
        assert_eq!(in_path("x.output>cpu"), "x.output%3Ecpu");
    }
}
