//! Requests to the servers of parts.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, Response, header};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
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

/// Why there is no answer.
pub(super) struct Unanswered {
    pub why: String,
    /// Whether the part may have received the request.
    pub may_be_received: bool,
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
        answer.map_err(|why| Unanswered { why, may_be_received })
    }

    async fn try_to_send(self, may_be_received: &mut bool) -> Result<Response<Body>, String> {
        let limit = self.limit;
        let late = || format!("no answer within {:.0} s", limit.as_secs_f64().ceil());
        let connected = timeout(CONNECT.min(limit), TcpStream::connect(self.address)).await;
        let stream = connected
            .map_err(|_| late())?
            .map_err(|error| format!("cannot connect: {}", error.kind()))?;
        let unreadable = |error: hyper::Error| format!("unreadable answer: {error}");
        let mut builder = Builder::new();
        builder.max_buf_size(HEAD_BYTES);
        let (mut sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(unreadable)?;
        // Ends when the answer has been read or dropped.
        let connection = tokio::spawn(connection);
        let mut request = Request::new(Body::from(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().map_err(|error| format!("bad path: {error}"))?;
        *request.headers_mut() = self.headers;
        let mut set = |name, value: String| {
            let value = value.parse().map_err(|_| format!("`{name}` has characters of no header"));
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
        Ok(answer.map_err(|_| late())?.map_err(unreadable)?.map(Body::new))
    }

    /// Sends the request and returns the body of a successful answer with at most `most_bytes`.
    pub async fn read(self, most_bytes: usize) -> Result<Bytes, String> {
        let limit = self.limit;
        let answer = self.send().await?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("it answers with status {status}"));
        }
        let body = timeout(limit, to_bytes(answer.into_body(), most_bytes)).await;
        body.map_err(|_| "its answer takes too long".to_owned())?
            .map_err(|_| format!("its answer breaks off, or has more than {most_bytes} bytes"))
    }
}
