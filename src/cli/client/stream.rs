//! Parser of server-sent events.

use std::io::{self, BufRead, BufReader, Read};

/// A server-sent event.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its type; `message` if the server names none.
    pub event: String,
    pub data: String,
}

/// Iterator over the events of a response, to its end.
pub struct Stream {
    reader: BufReader<Box<dyn Read + Send>>,
}

impl Stream {
    /// Reads events from `reader`.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self { reader: BufReader::new(Box::new(reader)) }
    }
}

impl Iterator for Stream {
    /// An event, or an error if the connection breaks.
    type Item = io::Result<Sent>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut event, mut data) = ("message".to_owned(), String::new());
        loop {
            let mut line = String::new();
            match self.reader.read_line(&mut line) {
                Ok(0) => return None,
                Err(error) => return Some(Err(error)),
                Ok(_) => {}
            }
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                // Comments only keep the connection alive.
                if !data.is_empty() {
                    return Some(Ok(Sent { event, data }));
                }
            } else if let Some(name) = line.strip_prefix("event:") {
                name.trim_start().clone_into(&mut event);
            } else if let Some(more) = line.strip_prefix("data:") {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(more.strip_prefix(' ').unwrap_or(more));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_returns_complete_events_and_skips_comments() {
        let text = ": hello\n\nid: 1\nevent: view\ndata: {\"a\":\ndata: 1}\n\n:\n\ndata:2\r\n\r\ndata: cut";
        let told: Vec<Sent> = Stream::new(text.as_bytes()).map(Result::unwrap).collect();
        let sent =
            |event: &str, data: &str| Sent { event: event.to_owned(), data: data.to_owned() };
        assert_eq!(told, [sent("view", "{\"a\":\n1}"), sent("message", "2")]);
    }
}
