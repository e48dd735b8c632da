//! Server-sent events, out of the bytes of an answer.

use std::io::{self, BufRead, BufReader, Read};

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
    /// The data of an event; an error once the connection is lost.
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut data = String::new();
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
                    return Some(Ok(data));
                }
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
        let told: Vec<String> = Stream::new(text.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(told, ["{\"a\":\n1}", "2"]);
    }
}
