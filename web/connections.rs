//! Connections: how many there may be, and which one ends to make room for another.
//!
//! A connection is new until it makes a request that is let in (with the token, where there is one). New
//! connections never keep others out: where there are too many, the client with the most of them loses the oldest one
//! that has sent nothing, or the oldest one if all have. Connections that are known have places of their own.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// New connections at once, and those of one client.
const NEW: usize = 96;
const NEW_OF_CLIENT: usize = 64;
/// Known connections at once.
const KNOWN: usize = 128;

/// All connections.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Table>);

#[derive(Default)]
struct Table {
    begun: u64,
    /// New connections, the oldest first.
    new: BTreeMap<u64, New>,
    known: usize,
}

/// A new connection.
struct New {
    client: IpAddr,
    end: Arc<Notify>,
    /// To see whether it has sent something, before anybody has read it.
    stream: Option<TcpStream>,
}

impl New {
    /// Whether the client has sent something, and waits for an answer.
    fn has_sent(&self) -> bool {
        // Its socket does not block.
        self.stream
            .as_ref()
            .is_some_and(|stream| stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0))
    }
}

/// One connection; it is counted until it is dropped.
pub(crate) struct Connection {
    all: Arc<Connections>,
    number: u64,
    end: Arc<Notify>,
    is_known: AtomicBool,
}

/// The client behind an address: an IPv6 client has all addresses of its network.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection of `client` that begins; another one may have to end for it. `stream` is a non-blocking
    /// handle on its socket; without it, it counts as one that has sent nothing.
    pub fn begin(self: &Arc<Self>, client: IpAddr, stream: Option<TcpStream>) -> Connection {
        let mut table = self.table();
        if let Some(number) = table.surplus(client)
            && let Some(New { end, .. }) = table.new.remove(&number)
        {
            end.notify_one();
        }
        table.begun += 1;
        let (number, end) = (table.begun, Arc::new(Notify::new()));
        table.new.insert(number, New { client, end: Arc::clone(&end), stream });
        Connection { all: Arc::clone(self), number, end, is_known: AtomicBool::new(false) }
    }
}

impl Table {
    /// The new connection that ends for another one of `client`.
    fn surplus(&self, client: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.new.values().for_each(|new| *counts.entry(new.client).or_default() += 1);
        let most = if counts.get(&client).is_some_and(|count| *count >= NEW_OF_CLIENT) {
            client
        } else if self.new.len() >= NEW {
            counts.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        let mut of_client = self.new.iter().filter(|(_, new)| new.client == most);
        let oldest = of_client.clone().next();
        of_client.find(|(_, new)| !new.has_sent()).or(oldest).map(|(number, _)| *number)
    }
}

impl Connection {
    /// Notes that a request of this connection was let in; `false` if there is no room for it.
    pub fn is_admitted(&self) -> bool {
        if self.is_known.load(Ordering::Relaxed) {
            return true;
        }
        let mut table = self.all.table();
        if table.known >= KNOWN || table.new.remove(&self.number).is_none() {
            return false;
        }
        table.known += 1;
        self.is_known.store(true, Ordering::Relaxed);
        true
    }

    /// Returns when this connection has to end for another one.
    pub async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.all.table();
        if *self.is_known.get_mut() {
            table.known -= 1;
        } else {
            table.new.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn has_ended(connection: &Connection) -> bool {
        let waiting = std::pin::pin!(connection.ended());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.poll(&mut context).is_ready()
    }

    #[test]
    fn new_connections_beyond_the_limit_end_the_oldest_of_the_largest_client() {
        let all = Arc::new(Connections::default());
        let [large, small] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let one = all.begin(small, None);
        let many: Vec<_> = (0..NEW_OF_CLIENT).map(|_| all.begin(large, None)).collect();
        assert!(many.iter().all(|connection| !has_ended(connection)));
        let more: Vec<_> = (0..10).map(|_| all.begin(large, None)).collect();
        assert!(many[..10].iter().all(has_ended) && !many[10..].iter().any(has_ended));
        let others: Vec<_> = (0..200).map(|n| all.begin([10, 1, 0, n].into(), None)).collect();
        assert!(more.iter().chain(&others).any(has_ended));
        assert!(!has_ended(others.last().unwrap()));
        assert!(all.table().new.len() <= NEW);
        drop((one, many, more, others));
        assert!(all.table().new.is_empty());
    }

    #[test]
    fn connections_with_a_request_outlive_those_without() {
        let all = Arc::new(Connections::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, address) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            (sender, all.begin(address.ip(), Some(stream)))
        };
        let (mut asking, first) = connect();
        asking.write_all(b"GET").unwrap();
        let (gone, second) = connect();
        drop(gone);
        let silent: Vec<_> = (0..NEW_OF_CLIENT).map(|_| connect()).collect();
        assert!(!has_ended(&first), "it has sent a request");
        assert!(has_ended(&second) && has_ended(&silent[0].1) && !has_ended(&silent[1].1));
        // None is kept for ever: where all have sent something, the oldest one ends.
        let senders = silent[1..].iter().map(|(sender, _)| sender);
        senders.for_each(|mut sender| sender.write_all(b"G").unwrap());
        let _next = connect();
        assert!(has_ended(&first));
    }

    #[test]
    fn known_connections_are_kept_and_counted() {
        let all = Arc::new(Connections::default());
        let client = IpAddr::from([127, 0, 0, 1]);
        let known: Vec<_> = (0..KNOWN).map(|_| all.begin(client, None)).collect();
        assert!(known[KNOWN - 1].is_admitted() && known[KNOWN - 1].is_admitted());
        assert!(!known[0].is_admitted(), "it had to end");
        let flood: Vec<_> = (0..1000).map(|_| all.begin(client, None)).collect();
        assert!(!has_ended(&known[KNOWN - 1]) && flood[999].is_admitted());
        drop((known, flood));
        assert_eq!(all.table().known, 0);
    }

    #[test]
    fn clients_of_one_network_are_one() {
        let of = |text: &str| client(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
