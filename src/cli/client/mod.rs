//! REST client for a running flowgraph, with the API that the web page uses.
//!
//! # Layout
//! - [`events`]: events as the terminal shows them
//! - [`output`]: look-up of an output by the name that the user gives
//! - [`stream`]: server-sent events
//! - `tls`: certificates that the client trusts
//! - `problem`: error responses

pub mod events;
pub mod output;
mod problem;
pub mod stream;
#[cfg_attr(not(feature = "tls"), path = "tls_absent.rs")]
mod tls;

use crate::failure::Failure;
use crate::serve::{USUAL_ADDRESS, with_host};
use fxgraph::files::read_awaited;
use fxgraph_api::events::EventInfo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use stream::Stream;
use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use ureq::{Agent, Body, Error};

/// Time to connect to the server.
const CONNECT: Duration = Duration::from_secs(5);
/// Time to wait for response headers.
const ANSWER: Duration = Duration::from_mins(1);
/// Longest time without a byte of a response; the server sends something every 15 s, also on a stream without events.
const SILENCE: Duration = Duration::from_mins(1);
/// Number of connections without a server after which it counts as gone, and time between two of them: a supervisor may be
/// starting it again.
const ATTEMPTS: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(200);
/// Largest file with a token or with certificates.
const FILE_BYTES: u64 = 4 << 20;
/// Largest JSON response.
const MOST_BYTES: u64 = 64 << 20;

/// Options that select the flowgraph to connect to.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Address of the running flowgraph (`fxgraph run FILE --listen`)
    #[arg(long, value_name = "URL", env = "FXGRAPH_CONNECT", hide_env_values = true, default_value_t = format!("http://{USUAL_ADDRESS}"))]
    connect: String,

    /// File with the token for that flowgraph
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// File with the certificates (PEM) to trust, in place of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// REST client of one flowgraph.
pub struct Client {
    agent: Agent,
    /// Base URL without a trailing slash: `http://127.0.0.1:8080`.
    url: String,
    token: Option<String>,
}

impl Connection {
    /// Options for the flowgraph at `url`, which needs no token.
    pub fn to(url: &str) -> Self {
        Self { connect: url.to_owned(), token_file: None, ca: None }
    }

    /// Options for the flowgraph at `url`, whose token is in a file.
    pub fn with_token(url: &str, token_file: PathBuf) -> Self {
        Self { token_file: Some(token_file), ..Self::to(url) }
    }

    /// Options for the flowgraph at `url`, with the token and the certificates of `self`.
    pub fn with_url(&self, url: &str) -> Self {
        Self { connect: url.to_owned(), ..self.clone() }
    }

    /// Creates a client without connecting.
    pub fn client(&self) -> Result<Client, Failure> {
        self.client_within(ANSWER)
    }

    /// The same, with a time limit for each answer.
    pub fn client_within(&self, limit: Duration) -> Result<Client, Failure> {
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
            let what = format!(
                "`--connect` (or FXGRAPH_CONNECT) must be a URL without a path, got `{}`",
                self.connect
            );
            let help = "give `localhost:8080` or `https://host:8080`";
            return Err(Failure::failed(with_help(&what, [help])));
        }
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect or a proxy would pass the token to another server.
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(limit))
            .timeout_per_read(Some(SILENCE))
            .timeout_per_write(Some(SILENCE));
        let config = tls::configure(config, self.ca.as_deref(), &url)?;
        Ok(Client { agent: config.build().into(), url, token })
    }
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = read_awaited(path, FILE_BYTES).and_then(text_of).map_err(|error| {
        Failure::because(&format!("cannot read the token file `{}`", path.display()), &error)
    })?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::failed(format!("`{}` contains no token", path.display())));
    }
    Ok(token.to_owned())
}

impl Client {
    /// Base URL of the flowgraph.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the JSON response to `GET` of `path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        read(self.answer(Method::GET, path, None)?, path)
    }

    /// Like [`Self::get`]; `None` if the server has not answered in time.
    pub fn get_in_time<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self.attempt(Method::GET, path, None) {
            Err(Error::Timeout(_)) => Ok(None),
            answer => {
                let answer = answer.map_err(|error| self.unanswered(&error))?;
                read(successful(answer)?, path).map(Some)
            }
        }
    }

    /// Whether no server is at the address any more: nothing accepts several connections, or each of them ends. A server that
    /// answers late, or with an error, is there.
    pub fn is_gone(&self) -> bool {
        (0..ATTEMPTS).all(|attempt| {
            if attempt > 0 {
                sleep(BETWEEN);
            }
            let answer = self.attempt(Method::GET, "/api/v1/health", None);
            answer.is_err_and(|error| has_no_listener(&error) || is_ended(&error))
        })
    }

    /// Like [`Self::get`]; `None` if the server rejects the token.
    pub fn get_if_allowed<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let answer = self.response(Method::GET, path, None)?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        read(successful(answer)?, path).map(Some)
    }

    /// Sends `method` to `path`, with an optional JSON body, and returns the JSON response.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        read(self.answer(method, path, body)?, path)
    }

    /// Returns headers and body of `GET` of `path`, without a size limit.
    pub fn bytes(&self, path: &str) -> Result<(HeaderMap, Vec<u8>), Failure> {
        let (head, mut body) = self.answer(Method::GET, path, None)?.into_parts();
        let bytes = body.with_config().limit(u64::MAX).read_to_vec();
        Ok((head.headers, bytes.map_err(|error| self.lost(&error))?))
    }

    /// Follows the stream of server-sent events at `path`.
    pub fn follow(&self, path: &str) -> Result<Stream, Failure> {
        let answer = self.answer(Method::GET, path, None)?;
        Ok(Stream::new(answer.into_body().into_with_config().limit(u64::MAX).reader()))
    }

    /// Waits for the first event of `block`, or without a block, after number `since` whose kind is in `made` or in
    /// `failed`; the latter is an error.
    pub fn wait_for(
        &self,
        since: u64,
        block: Option<&str>,
        made: &[&str],
        failed: &[&str],
    ) -> Result<(), Failure> {
        for sent in self.follow(&format!("/api/v1/events/stream?since={since}"))? {
            let sent =
                sent.map_err(|error| Failure::because("the stream of events broke", &error))?;
            let event: EventInfo = typed(serde_json::from_str(&sent.data).unwrap_or(Value::Null))?;
            if event.block.as_deref() != block {
                continue;
            }
            if made.contains(&&*event.kind) {
                return Ok(());
            }
            if failed.contains(&&*event.kind) {
                return Err(Failure::failed(event.text));
            }
        }
        Err(Failure::failed("the run ended before the change was made"))
    }

    /// Sends a flowgraph in YAML to `path`, and returns the JSON response.
    pub fn put_yaml<T: DeserializeOwned>(&self, path: &str, text: String) -> Result<T, Failure> {
        read(self.ask(Method::PUT, path, Some(("application/yaml", text)))?, path)
    }

    /// Replaces the flowgraph by `yaml` with a request to `path`, and waits for the result; returns the answer.
    pub fn replace_flowgraph(&self, path: &str, yaml: String) -> Result<Value, Failure> {
        let mut answer: Value = self.put_yaml(path, yaml)?;
        if let Some(since) = answer["goes_on_after_event"].as_u64() {
            self.wait_for(since, None, &["updated"], &["not_updated"])?;
            answer["is_made"] = true.into();
        }
        Ok(answer)
    }

    fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Failure> {
        self.ask(method, path, body.map(|body| ("application/json", body.to_string())))
    }

    /// Sends `method` to `path`, with an optional body of a media type; returns a successful response.
    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Response<Body>, Failure> {
        successful(self.response(method, path, body)?)
    }

    /// The same, with the response of any status.
    fn response(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Response<Body>, Failure> {
        self.attempt(method, path, body).map_err(|error| self.unanswered(&error))
    }

    fn attempt(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Response<Body>, Error> {
        let is_repeatable = method == Method::GET;
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        match body {
            Some((media_type, body)) => request
                .header("content-type", media_type)
                .body(body)
                .map_err(Error::from)
                .and_then(|request| self.agent.run(request)),
            None => request.body(()).map_err(Error::from).and_then(|request| {
                let again = is_repeatable.then(|| request.clone());
                let answer = self.agent.run(request);
                // The server may have ended an idle connection at the moment of the request.
                match (answer, again) {
                    (Err(error), Some(again)) if is_ended(&error) => self.agent.run(again),
                    (answer, _) => answer,
                }
            }),
        }
    }

    fn lost(&self, error: &Error) -> Failure {
        Failure::because(&format!("the connection to {} broke", self.url), error)
    }

    /// Describes a request without a response.
    fn unanswered(&self, error: &Error) -> Failure {
        let help = match error {
            error if tls::has_failed(error) => tls::HELP,
            Error::Io(_) | Error::ConnectionFailed | Error::HostNotFound | Error::Timeout(_) => [
                "start a flowgraph with `fxgraph run FILE --listen`",
                "connect to another address with `--connect URL`",
            ],
            // For example the alert of a TLS server.
            Error::Protocol(_) if !self.url.starts_with("https:") => {
                let what = format!("no flowgraph answers at {} without TLS", self.url);
                let url = self.url.replacen("http:", "https:", 1);
                let help = format!("if it was started with `--tls-cert`, give `--connect {url}`");
                return Failure::failed(with_help(&what, [&*help]));
            }
            _ => return self.lost(error),
        };
        let reason = match error {
            Error::Io(io) if !tls::has_failed(error) => io.kind().to_string(),
            other => other.to_string(),
        };
        let what = format!("no flowgraph answers at {}: {reason}", self.url);
        Failure::failed(with_help(&what, help))
    }
}

/// Whether nothing listens at the address.
fn has_no_listener(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        error => matches!(error, Error::ConnectionFailed),
    }
}

/// Whether the server ended the connection without a response.
fn is_ended(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let kind = match error {
        Error::Io(error) => error.kind(),
        _ => return false,
    };
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// The response, or the error that it describes.
fn successful(mut answer: Response<Body>) -> Result<Response<Body>, Failure> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let text = answer.body_mut().read_to_vec().unwrap_or_default();
    Err(problem::failure(answer.status(), &text))
}

fn read<T: DeserializeOwned>(mut answer: Response<Body>, path: &str) -> Result<T, Failure> {
    let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
    let body = body.map_err(|error| Failure::because("the response is incomplete", &error))?;
    serde_json::from_slice(&body).map_err(|_| {
        let what = format!("unexpected response at `{path}`");
        Failure::failed(with_help(
            &what,
            ["run the server and this program in the same version of fxgraph"],
        ))
    })
}

/// Reads a response that may also be shown as JSON.
pub fn typed<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer).map_err(|error| Failure::because("unexpected response", &error))
}

/// Reads an event `problem` of a stream.
pub fn problem_of(data: &str) -> Failure {
    problem::failure(StatusCode::OK, data.as_bytes())
}

/// Formats an error with its help, like a diagnostic.
pub fn with_help<'a>(what: &str, help: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = what.to_owned();
    for line in help {
        let _ = write!(text, "\n   = help: {line}");
    }
    text
}

/// Percent-encodes `name` as one segment of a path: block names contain brackets.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    fn client(connect: &str) -> Result<Client, Failure> {
        Connection { connect: connect.to_owned(), token_file: None, ca: None }.client()
    }

    #[test]
    fn connect_accepts_urls_without_a_path_only() {
        for good in ["http://127.0.0.1:8080", "https://host", "http://[::1]:80/", "host:80", "8080"]
        {
            assert!(client(good).is_ok(), "{good}");
        }
        for bad in ["", ":", "ftp://host", "http://", "http://host/api", "http://a b"] {
            assert!(client(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn server_is_gone_if_nothing_listens_and_not_if_it_answers_late() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = Connection::to(&format!("http://{}", listener.local_addr().unwrap()));
        let client = connection.client_within(Duration::from_millis(50)).unwrap();
        assert!(!client.is_gone(), "it accepts, and does not answer");
        assert_eq!(client.get_in_time::<Value>("/").unwrap(), None);
        drop(listener);
        assert!(client.is_gone());
        assert!(client.get_in_time::<Value>("/").is_err());
    }

    #[test]
    fn get_is_repeated_when_the_server_ends_the_connection_and_post_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut requests = Vec::new();
            // A client that uses the second connection again would not make a third one.
            let ok = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1";
            for answer in ["", ok, ""] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = BufReader::new(&stream).lines().map(Result::unwrap);
                requests.push(head.next().unwrap());
                // The kernel resets a connection that is closed with unread bytes: the client would get no answer.
                head.find(String::is_empty).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
            requests
        });
        let client = client(&url).unwrap();
        assert_eq!(client.get::<u8>("/a").unwrap(), 1);
        client.send::<u8>(Method::POST, "/b", None).unwrap_err();
        let expected = ["GET /a HTTP/1.1", "GET /a HTTP/1.1", "POST /b HTTP/1.1"];
        assert_eq!(server.join().unwrap(), expected);
    }

    #[test]
    fn in_path_encodes_brackets_and_keeps_dots() {
        assert_eq!(in_path("f[0].pfb"), "f%5B0%5D.pfb");
        assert_eq!(in_path("x.output>cpu"), "x.output%3Ecpu");
    }
}
