//! TCP clients that get sentences of NMEA.

use fxgraph::Counter;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Most clients at a time; further ones are closed.
const MOST_CLIENTS: usize = 16;

/// Listener and clients. Nothing here waits: a client whose buffer is full is closed.
pub struct Clients {
    listener: TcpListener,
    streams: Vec<TcpStream>,
    dropped: Counter,
}

impl Clients {
    pub fn listen(address: SocketAddr, dropped: Counter) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, streams: Vec::with_capacity(MOST_CLIENTS), dropped })
    }

    /// Accepts clients that wait, a limited number in each epoch.
    fn accept(&mut self) {
        // Errors are those of one client, or of a machine without descriptors: the next epoch tries again.
        for _ in 0..2 * MOST_CLIENTS {
            let Ok((client, _)) = self.listener.accept() else { return };
            if self.streams.len() < MOST_CLIENTS && client.set_nonblocking(true).is_ok() {
                self.streams.push(client);
            } else {
                self.dropped.add(1);
            }
        }
    }

    /// Sends `text` to all clients.
    pub fn send(&mut self, text: &str) {
        self.accept();
        let dropped = &self.dropped;
        self.streams.retain_mut(|client| match client.write(text.as_bytes()) {
            Ok(sent) if sent == text.len() => true,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            // The client has gone, or does not read: a part of a sentence would be of no use.
            _ => {
                dropped.add(1);
                false
            }
        });
    }
}
