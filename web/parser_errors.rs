//! Errors of the HTTP parser as problem documents. The parser sends a response without a body itself; this module
//! recognises that response on its way to the client and replaces it by a problem document.

use crate::problem::{MEDIA_TYPE, Problem};
use axum::http::StatusCode;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest response of the parser.
const BARE_BYTES: usize = 160;
/// Longest vectored write that is searched for such a response.
const LOOKED_AT_BYTES: usize = 4096;

/// Connection that replaces the parser's responses.
pub(crate) struct Explained<S> {
    stream: S,
    /// Bytes to send before anything else.
    waiting: Vec<u8>,
    sent: usize,
}

impl<S> Explained<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, waiting: Vec::new(), sent: 0 }
    }
}

/// Finds a response of the parser at the end of `bytes`: its offset and status.
fn bare_head(bytes: &[u8]) -> Option<(usize, StatusCode)> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let from = bytes.len().saturating_sub(BARE_BYTES);
    let at = from + bytes[from..].windows(9).rposition(|window| window == b"HTTP/1.1 ")?;
    let mut lines = std::str::from_utf8(&bytes[at..]).ok()?.split("\r\n");
    let status = lines.next()?.get(9..12)?.parse().ok()?;
    let is_bare = lines.all(|line| {
        let name = line.split(':').next().unwrap_or_default();
        ["", "content-length", "date", "connection"].contains(&name)
    });
    let known = [
        StatusCode::BAD_REQUEST,
        StatusCode::URI_TOO_LONG,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    ];
    (is_bare && known.contains(&status)).then_some((at, status))
}

/// Returns the response to a request that the parser rejects.
fn answer(status: StatusCode) -> Vec<u8> {
    let detail = match status {
        StatusCode::URI_TOO_LONG => "the request target is too long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "the head of the request is too long",
        _ => "the request is not HTTP/1.1",
    };
    let body = serde_json::to_string(&Problem::new(status, detail).document).unwrap_or_default();
    let (reason, length) = (status.canonical_reason().unwrap_or_default(), body.len());
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {length}\r\n\
         x-content-type-options: nosniff\r\ncross-origin-resource-policy: same-origin\r\n\
         connection: close\r\n\r\n{body}",
        status.as_u16()
    )
    .into_bytes()
}

impl<S: AsyncWrite + Unpin> Explained<S> {
    /// Sends the waiting bytes.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.waiting.len() {
            let rest = &self.waiting[self.sent..];
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.waiting.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Explained<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explained<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_waiting(cx))?;
        let Some((at, status)) = bare_head(bytes) else {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        };
        self.waiting = [&bytes[..at], &answer(status)].concat();
        // The remaining bytes are sent by the next call.
        if let Poll::Ready(Err(error)) = self.poll_waiting(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if parts.iter().map(|part| part.len()).sum::<usize>() <= LOOKED_AT_BYTES {
            return self.poll_write(
                cx,
                &parts.iter().flat_map(|part| &**part).copied().collect::<Vec<u8>>(),
            );
        }
        ready!(self.poll_waiting(cx))?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_head_matches_responses_of_the_parser_only() {
        let bare = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: Mon, 23 Nov 2026 01:00:00 GMT\r\n\r\n";
        assert_eq!(bare_head(bare.as_bytes()), Some((0, StatusCode::BAD_REQUEST)));
        let after = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{bare}");
        assert_eq!(bare_head(after.as_bytes()).unwrap().0, after.len() - bare.len());
        let ours = bare.replace("date", "x-content-type-options");
        for other in [&*ours, &bare.replace("400", "404"), &bare[..bare.len() - 1], "", "\r\n\r\n"]
        {
            assert_eq!(bare_head(other.as_bytes()), None, "{other}");
        }
    }
}
