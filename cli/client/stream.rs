//! Server-sent events, out of the bytes of an answer.

use std::io::{self, BufRead, BufReader, Read};

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    /// What it is; `message` unless it says so.
    pub event: String,
    pub data: String,
}

/// Events as they are sent, up to the end of the answer.
pub struct Stream {
    reader: BufReader<Box<dyn Read + Send>>,
}

impl Stream {
    /// The events in `reader`.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self { reader: BufReader::new(Box::new(reader)) }
    }
}

impl Iterator for Stream {
    /// An event; an error once the connection is lost.
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
                // Comments keep the connection alive and are no events.
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
    fn events_have_a_name_and_data_and_comments_are_none() {
        let text = ": hello\n\nid: 1\nevent: view\ndata: {\"a\":\ndata: 1}\n\n:\n\ndata:2\r\n\r\ndata: cut";
        let told: Vec<Sent> = Stream::new(text.as_bytes()).map(Result::unwrap).collect();
        let sent =
            |event: &str, data: &str| Sent { event: event.to_owned(), data: data.to_owned() };
        assert_eq!(told, [sent("view", "{\"a\":\n1}"), sent("message", "2")]);
    }
}
