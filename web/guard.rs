//! Admission of requests: rate, host, origin and token.

use crate::bodies::{Bodies, Received};
use crate::connections::Connection;
use crate::problem::Problem;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fxgraph::files::read_regular;
use fxgraph::flowgraph::Client;
use fxgraph::lock::lock;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use subtle::ConstantTimeEq;

/// Limit on the requests per second of one client, and on the size of a burst with and without the token: the
/// controller of an array sends requests for all of its antennas at once.
const RATE_HZ: f64 = 100.0;
const BURST: f64 = 512.0;
const BURST_WITHOUT_TOKEN: f64 = 200.0;
/// Maximum number of clients with counted requests; beyond it, idle clients are removed.
const CLIENTS: usize = 1024;
/// Minimum length of a token; a shorter one can be guessed.
const TOKEN_BYTES: usize = 16;
/// Maximum size of a token file in bytes.
const TOKEN_FILE_BYTES: u64 = 4096;
/// Paths of the API, for which requests from pages of other sites must have an `Origin`.
const API: [&str; 2] = ["/api/", "/metrics"];

/// Secret token that clients must send.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Error of a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file contains no valid token.
    #[error("`{}` contains no valid token: write one line of {TOKEN_BYTES} or more visible characters, like \
             the output of `openssl rand -hex 32`", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// Reads the token in the file at `path`.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let bytes = read_regular(path, TOKEN_FILE_BYTES)
            .map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
        let text = String::from_utf8_lossy(&bytes);
        let word = text.trim();
        if word.len() < TOKEN_BYTES || !word.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Unusable { path: path.to_owned() });
        }
        Ok(Self(word.to_owned()))
    }

    /// Whether a request contains the token.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let brought = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().split_at_checked("bearer ".len()))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        // A comparison in constant time reveals nothing about the token.
        brought.is_some_and(|(_, word)| bool::from(word.ct_eq(self.0.as_bytes())))
    }
}

/// The client of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub IpAddr);

/// Headers of requests that another program passes on.
const PASSED_ON: [HeaderName; 4] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
];

impl Peer {
    /// The client of a request with these headers. It is on this machine if it has connected by the loopback interface,
    /// passes nothing on for others, and is no page of another site.
    pub fn client(self, headers: &HeaderMap) -> Client {
        let is_passed_on = PASSED_ON.iter().any(|name| headers.contains_key(name));
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let of_page = headers.contains_key(header::ORIGIN);
        let authority = text(header::ORIGIN).and_then(|origin| Some(origin.split_once("://")?.1));
        let is_own_page = !of_page || (authority.is_some() && authority == text(header::HOST));
        let is_local = self.0.to_canonical().is_loopback() && !is_passed_on && is_own_page;
        if is_local { Client::Local } else { Client::Any }
    }
}

/// Rules of admission.
pub(crate) struct Guard {
    /// Whether the server listens on a loopback address.
    pub is_local: bool,
    pub token: Option<Token>,
    /// Origins whose pages may send requests.
    pub origins: Vec<HeaderValue>,
    pub rates: Rates,
    pub bodies: Bodies,
}

/// Layer for all requests: admits a request or returns an error.
pub(crate) async fn admit(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let headers = request.headers();
    let has_token = guard.token.as_ref().is_none_or(|token| token.is_in(headers));
    // Clients with the token have a separate limit, independent of requests without it from the same address.
    if let Some(Peer(client)) = request.extensions().get()
        && !guard.rates.admit((*client, has_token), Instant::now())
    {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many requests at once")
            .help(format!("send at most {RATE_HZ} requests per second"));
        return Err(([(header::RETRY_AFTER, "1")], problem).into_response());
    }
    guard.check(headers, request.uri()).map_err(IntoResponse::into_response)?;
    // If no client has a token, a request tells what its client is only once it has arrived as a whole.
    let is_whole = guard.token.is_some() || request.body().is_end_stream();
    if has_token && is_whole && !know(request.extensions()) {
        return Err(crowded());
    }
    Ok(next.run(request).await)
}

/// Marks the connection of a request as known, if there is room for one more.
fn know(extensions: &Extensions) -> bool {
    let connection: Option<&Arc<Connection>> = extensions.get();
    connection.is_none_or(|connection| connection.is_admitted())
}

fn crowded() -> Response {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections at once");
    let headers = [(header::RETRY_AFTER, "5"), (header::CONNECTION, "close")];
    (headers, problem).into_response()
}

/// Layer for all requests that read or change the flowgraph: requires the token, then receives the body.
pub(crate) async fn ask_token(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    if guard.token.as_ref().is_some_and(|token| !token.is_in(request.headers())) {
        let detail = if request.headers().contains_key(header::AUTHORIZATION) {
            "the token is wrong: it is not that of this flowgraph"
        } else {
            "this flowgraph requires a token"
        };
        let problem = Problem::new(StatusCode::UNAUTHORIZED, detail)
            .help("send it as `Authorization: Bearer TOKEN`");
        return Err(([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response());
    }
    let (Some(Peer(client)), false) =
        (request.extensions().get().copied(), request.body().is_end_stream())
    else {
        return Ok(next.run(request).await);
    };
    let (head, body) = request.into_parts();
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let received = guard.bodies.receive(client, length, body).await;
    let Received { bytes, memory } = received.map_err(IntoResponse::into_response)?;
    if !know(&head.extensions) {
        return Err(crowded());
    }
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(memory);
    Ok(response)
}

impl Guard {
    /// Checks `Host` and `Origin`. Browsers send requests on behalf of any page that they show: pages of other origins
    /// are rejected, and so are host names rebound to this machine (DNS rebinding).
    fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let bad = |detail: &str| Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        if headers.get_all(header::HOST).iter().count() > 1 {
            return bad("the request has several `Host` headers");
        }
        if let (Some(authority), Some(host)) = (uri.authority(), headers.get(header::HOST))
            && authority.as_str().as_bytes() != host.as_bytes()
        {
            return bad("the request names one host in its target and another in `Host`");
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if self.is_local && !host.is_some_and(is_this_machine) {
            let detail = format!("`{}` is not a name of this machine", host.unwrap_or_default());
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail)
                .help("use localhost or 127.0.0.1"));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return from_this_site(headers, uri) };
        let asked = origin.to_str().unwrap_or_default();
        let of_origin = asked.split_once("://").map(|(_, authority)| authority);
        if (of_origin.is_some() && of_origin == host) || self.origins.contains(origin) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!("requests from pages of `{asked}` are not allowed"),
        )
        .help(format!("start the program with `--cors-origin {asked}` to allow them")))
    }
}

/// Checks `Sec-Fetch-Site`, which browsers send for embedded resources such as images, in place of `Origin`. Links
/// from other sites to pages are allowed.
fn from_this_site(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let word = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap_or("?"));
    if matches!(word("sec-fetch-site"), "" | "same-origin" | "none") {
        return Ok(());
    }
    let is_link = word("sec-fetch-mode") == "navigate" && word("sec-fetch-dest") == "document";
    if is_link && !API.iter().any(|start| uri.path().starts_with(start)) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "pages of other sites may not embed resources of this server",
    )
    .help("allow the page's origin with `--cors-origin`, and use `fetch`"))
}

/// Whether `host`, with or without a port, is `localhost` or a loopback address.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = bare.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Remaining requests of each client, with and without the token; refilled with time.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<(IpAddr, bool), (f64, Instant)>>);

impl Rates {
    fn admit(&self, client: (IpAddr, bool), now: Instant) -> bool {
        let burst = |(_, has_token): (IpAddr, bool)| {
            if has_token { BURST } else { BURST_WITHOUT_TOKEN }
        };
        let left = |client, (left, then): (f64, Instant)| {
            let more = now.saturating_duration_since(then).as_secs_f64() * RATE_HZ;
            burst(client).min(left + more)
        };
        let mut clients = lock(&self.0);
        if clients.len() >= CLIENTS && !clients.contains_key(&client) {
            clients.retain(|client, known| left(*client, *known) < burst(*client));
        }
        let left = clients.get(&client).map_or(burst(client), |known| left(client, *known));
        let is_admitted = left >= 1.0;
        clients.insert(client, (if is_admitted { left - 1.0 } else { left }, now));
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bodies::BODY_BYTES;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        pairs.collect()
    }

    fn guard(is_local: bool) -> Guard {
        let origins = vec![HeaderValue::from_static("https://board.example")];
        let (rates, bodies) = (Rates::default(), Bodies::new(BODY_BYTES));
        Guard { is_local, token: None, origins, rates, bodies }
    }

    #[test]
    fn check_rejects_rebound_host_names() {
        for host in ["localhost:80", "LOCALHOST", "127.0.0.1:8080", "127.8.9.1", "[::1]:8", "[::1]"]
        {
            assert_eq!(
                guard(true).check(&headers(&[("host", host)]), &Uri::from_static("/")),
                Ok(()),
                "{host}"
            );
        }
        for host in ["evil.example", "localhost.evil.example:80", "10.0.0.1", "", "127.0.0.1.a:1"] {
            assert!(
                guard(true).check(&headers(&[("host", host)]), &Uri::from_static("/")).is_err(),
                "{host}"
            );
            assert_eq!(
                guard(false).check(&headers(&[("host", host)]), &Uri::from_static("/")),
                Ok(()),
                "{host}"
            );
        }
        assert!(guard(true).check(&headers(&[]), &Uri::from_static("/")).is_err());
    }

    #[test]
    fn check_rejects_origins_that_are_not_allowed() {
        let check = |origin| {
            guard(true).check(
                &headers(&[("host", "localhost:80"), ("origin", origin)]),
                &Uri::from_static("/"),
            )
        };
        assert_eq!(check("http://localhost:80"), Ok(()));
        assert_eq!(check("https://board.example"), Ok(()));
        for origin in ["http://localhost:81", "https://evil.example", "null", "localhost:80"] {
            assert!(check(origin).is_err(), "{origin}");
        }
    }

    #[test]
    fn check_rejects_requests_embedded_in_other_sites() {
        let check = |path: &'static str, more: &[(&'static str, &str)]| {
            let all = [&[("host", "localhost:80")], more].concat();
            guard(true).check(&headers(&all), &Uri::from_static(path)).is_ok()
        };
        let stream = "/api/v1/blocks/x/outputs/y/stream";
        for site in ["cross-site", "same-site", "anything"] {
            let image = [("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")];
            assert!(!check(stream, &image) && !check("/", &image), "{site}");
            let link = [
                ("sec-fetch-site", site),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ];
            assert!(check("/", &link) && !check(stream, &link), "{site}");
            let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
            assert!(!check("/", &frame), "{site}");
            let asked = [("sec-fetch-site", site), ("origin", "https://board.example")];
            assert!(check(stream, &asked), "{site}");
        }
        for own in ["same-origin", "none"] {
            assert!(check(stream, &[("sec-fetch-site", own)]), "{own}");
        }
    }

    #[test]
    fn check_rejects_two_hosts() {
        let check = |names: &[&str], target: &'static str| {
            let mut all = HeaderMap::new();
            for name in names {
                all.append(header::HOST, HeaderValue::from_str(name).unwrap());
            }
            guard(true).check(&all, &Uri::from_static(target)).is_ok()
        };
        assert!(check(&["localhost"], "/") && check(&["localhost"], "http://localhost/"));
        assert!(!check(&["localhost", "localhost"], "/"));
        assert!(!check(&["localhost"], "http://evil.example/"));
    }

    #[test]
    fn token_must_match_completely() {
        let token = Token("0123456789abcdef".to_owned());
        let with = |value| token.is_in(&headers(&[("authorization", value)]));
        assert!(with("Bearer 0123456789abcdef") && with("bearer 0123456789abcdef"));
        for wrong in
            ["Bearer 0123456789abcde", "Bearer 0123456789abcdeff", "Basic 0123456789abcdef"]
        {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!with("Bearer ") && !with("") && !token.is_in(&headers(&[])));
    }

    #[test]
    fn token_read_rejects_short_tokens_and_special_files() {
        let directory = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = directory.path().join("token");
            std::fs::write(&path, text).unwrap();
            Token::read(&path)
        };
        assert_eq!(read("0123456789abcdef\n").unwrap().0, "0123456789abcdef");
        for text in ["", "short", "0123456789abcdef 0123456789abcdef", "0123456789\u{e4}bcdefgh"] {
            assert!(matches!(read(text), Err(TokenError::Unusable { .. })), "{text}");
        }
        let missing = Token::read(&directory.path().join("none"));
        assert!(matches!(missing, Err(TokenError::Unreadable { .. })));
        let large = "0".repeat(TOKEN_FILE_BYTES as usize + 1);
        assert!(matches!(read(&large), Err(TokenError::Unreadable { .. })));
        for special in [Path::new("/dev/zero"), directory.path()] {
            assert!(matches!(Token::read(special), Err(TokenError::Unreadable { .. })));
        }
    }

    #[test]
    fn rate_limit_is_separate_for_each_client() {
        let rates = Rates::default();
        let one = (IpAddr::from(Ipv4Addr::LOCALHOST), false);
        let other = (Ipv6Addr::LOCALHOST.into(), false);
        let start = Instant::now();
        let admitted = |client, now, count| (0..count).filter(|_| rates.admit(client, now)).count();
        assert_eq!(admitted(one, start, 1000), BURST_WITHOUT_TOKEN as usize);
        assert_eq!(admitted(other, start, 10), 10);
        assert_eq!(admitted((one.0, true), start, 1000), BURST as usize, "it has the token");
        let later = start + Duration::from_millis(500);
        assert_eq!(admitted(one, later, 1000), (RATE_HZ / 2.0) as usize);
    }
}
