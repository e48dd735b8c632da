//! Requests to the servers of parts.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time to connect to a part.
const CONNECT: Duration = Duration::from_secs(1);
/// Largest head of an answer, in bytes.
const HEAD_BYTES: usize = 64 * 1024;

/// A request to a part.
pub(super) struct Asked<'a> {
    pub address: &'a str,
    pub token: Option<&'a str>,
    pub method: Method,
    /// Path with the query.
    pub path: &'a str,
    /// Further headers.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Time until the head of the answer has arrived.
    pub limit: Duration,
}

/// Meaning of a request without a usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    /// Nothing: it is busy, or the network is.
    NoAnswer,
    /// Its address has no server, or that of another program.
    NotThere,
    /// Its server rejects the token.
    RejectsToken,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub contact: Contact,
    pub why: String,
    /// Whether the part may have received the request.
    pub may_be_received: bool,
}

impl Unanswered {
    pub fn not_there(why: impl Into<String>) -> Self {
        Self { contact: Contact::NotThere, why: why.into(), may_be_received: false }
    }

    fn no_answer(why: impl Into<String>) -> Self {
        Self { contact: Contact::NoAnswer, why: why.into(), may_be_received: true }
    }

    /// An answer with the status of an error.
    fn of(status: StatusCode) -> Self {
        let why = format!("it answers with status {status}");
        let contact = match status {
            StatusCode::UNAUTHORIZED => Contact::RejectsToken,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Contact::NotThere,
            // It has too much to do.
            _ => Contact::NoAnswer,
        };
        Self { contact, ..Self::no_answer(why) }
    }
}

impl From<Unanswered> for String {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.why
    }
}

impl<'a> Asked<'a> {
    /// A request for `path` of the server at `address`.
    pub fn get(address: &'a str, token: Option<&'a str>, path: &'a str, limit: Duration) -> Self {
        let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
        Self { address, token, method, path, headers, body, limit }
    }

    /// Sends the request; the body of the answer arrives as the part sends it.
    pub async fn send(self) -> Result<Response<Body>, Unanswered> {
        let mut may_be_received = false;
        let answer = self.try_to_send(&mut may_be_received).await;
        answer.map_err(|error| Unanswered { may_be_received, ..error })
    }

    async fn try_to_send(self, may_be_received: &mut bool) -> Result<Response<Body>, Unanswered> {
        let limit = self.limit;
        let late = |limit: Duration| {
            Unanswered::no_answer(format!("no answer within {:.0} s", limit.as_secs_f64().ceil()))
        };
        let to_connect = CONNECT.min(limit);
        let connected = timeout(to_connect, TcpStream::connect(self.address)).await;
        let stream = connected.map_err(|_| late(to_connect))?.map_err(|error| {
            let why = format!("cannot connect: {}", error.kind());
            match error.kind() {
                ErrorKind::ConnectionRefused => Unanswered::not_there(why),
                _ => Unanswered::no_answer(why),
            }
        })?;
        let unreadable =
            |error: hyper::Error| Unanswered::no_answer(format!("unreadable answer: {error}"));
        let bad = |why: String| Unanswered::no_answer(why);
        let mut builder = Builder::new();
        builder.max_buf_size(HEAD_BYTES);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(unreadable)?;
        // Ends when the answer has been read or dropped.
        let connection = tokio::spawn(connection);
        let mut request = Request::new(Body::from(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() =
            self.path.parse().map_err(|error| bad(format!("bad path: {error}")))?;
        *request.headers_mut() = self.headers;
        let mut set = |name, value: String| {
            let value =
                value.parse().map_err(|_| bad(format!("`{name}` has characters of no header")));
            value.map(|value| drop(request.headers_mut().insert(name, value)))
        };
        set(header::HOST, self.address.to_owned())?;
        // A client of the fleet is no client on the machine of the part.
        set(header::FORWARDED, "for=unknown".to_owned())?;
        if let Some(token) = self.token {
            set(header::AUTHORIZATION, format!("Bearer {token}"))?;
        }
        *may_be_received = true;
        let answer = timeout(limit, sender.send_request(request)).await;
        if !matches!(answer, Ok(Ok(_))) {
            connection.abort();
        }
        Ok(answer.map_err(|_| late(limit))?.map_err(unreadable)?.map(Body::new))
    }

    /// Sends the request and returns the body of a successful answer with at most `most_bytes`.
    pub async fn read(self, most_bytes: usize) -> Result<Bytes, Unanswered> {
        let limit = self.limit;
        let answer = self.send().await?;
        let status = answer.status();
        if !status.is_success() {
            return Err(Unanswered::of(status));
        }
        let body = timeout(limit, to_bytes(answer.into_body(), most_bytes)).await;
        let broken = format!("its answer breaks off, or has more than {most_bytes} bytes");
        body.map_err(|_| Unanswered::no_answer("its answer takes too long"))?
            .map_err(|_| Unanswered::no_answer(broken))
    }
}
