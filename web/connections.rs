//! Limits on connections, and the choice of a connection to end for a new one.
//!
//! A connection is new until one of its requests is admitted (with the token, if there is one). New connections never
//! keep others out: at the limit, the server ends a connection of the client with the most new connections, the oldest
//! silent one, or the oldest one if all have sent something. Known connections have a limit of their own.

use fxgraph::lock::lock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Limits of the connections.
#[derive(Clone, Copy)]
struct Limits {
    /// New connections, and new connections of one client.
    new: usize,
    new_of_client: usize,
    known: usize,
}

impl Limits {
    /// Limits for a process that may open `files` files, of which connections leave half to the flowgraph. A new
    /// connection takes two.
    fn of_files(files: usize) -> Self {
        let known = (files / 4).clamp(64, 1024);
        let new = (known / 2).max(96);
        Self { new, new_of_client: new * 3 / 4, known }
    }
}

/// Files that the process may open, after raising the limit as far as the system allows.
pub(crate) fn open_files() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
    let files = getrlimit(Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// All connections.
pub(crate) struct Connections {
    table: Mutex<Table>,
    limits: Limits,
}

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
    /// Handle to check for received bytes before the server reads them.
    stream: Option<TcpStream>,
}

impl New {
    /// Whether the client has sent something.
    fn has_sent(&self) -> bool {
        // The socket is non-blocking.
        self.stream
            .as_ref()
            .is_some_and(|stream| stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0))
    }
}

/// Whether the client of a connection, whose socket is non-blocking, has ended it without a request.
pub(crate) fn has_ended(stream: &TcpStream) -> bool {
    matches!(stream.peek(&mut [0]), Ok(0))
}

/// One connection, counted until dropped.
pub(crate) struct Connection {
    all: Arc<Connections>,
    number: u64,
    end: Arc<Notify>,
    is_known: AtomicBool,
}

/// Returns the client of an address: for IPv6, its /64 network.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

impl Connections {
    /// No connections yet, of a process that may open `files` files.
    pub fn new(files: usize) -> Self {
        Self { table: Mutex::default(), limits: Limits::of_files(files) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Counts a new connection of `client`; another one may have to end for it. `stream` is a non-blocking handle on
    /// its socket; without `stream` the connection counts as silent.
    pub fn begin(self: &Arc<Self>, client: IpAddr, stream: Option<TcpStream>) -> Connection {
        let mut table = self.table();
        if let Some(number) = table.surplus(client, self.limits)
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
    /// Returns the new connection that must end for another one of `client`.
    fn surplus(&self, client: IpAddr, limits: Limits) -> Option<u64> {
        if self.new.len() < limits.new_of_client {
            return None;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.new.values().for_each(|new| *counts.entry(new.client).or_default() += 1);
        let most = if counts.get(&client).is_some_and(|count| *count >= limits.new_of_client) {
            client
        } else if self.new.len() >= limits.new {
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
    /// Marks the connection as known; returns `false` if the limit of known connections is reached.
    pub fn is_admitted(&self) -> bool {
        if self.is_known.load(Ordering::Relaxed) {
            return true;
        }
        let mut table = self.all.table();
        if table.known >= self.all.limits.known || table.new.remove(&self.number).is_none() {
            return false;
        }
        table.known += 1;
        self.is_known.store(true, Ordering::Relaxed);
        true
    }

    /// Waits until this connection must end for another one.
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

    const FILES: usize = 1024;
    const LIMITS: Limits = Limits { new: 128, new_of_client: 96, known: 256 };
    const NEW: usize = LIMITS.new;
    const NEW_OF_CLIENT: usize = LIMITS.new_of_client;
    const KNOWN: usize = LIMITS.known;

    fn has_ended(connection: &Connection) -> bool {
        let waiting = std::pin::pin!(connection.ended());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.poll(&mut context).is_ready()
    }

    #[test]
    fn new_connection_beyond_the_limit_ends_the_oldest_of_the_largest_client() {
        let all = Arc::new(Connections::new(FILES));
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
    fn silent_connection_ends_before_one_with_a_request() {
        let all = Arc::new(Connections::new(FILES));
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
        // If all have sent something, the oldest one ends.
        let senders = silent[1..].iter().map(|(sender, _)| sender);
        senders.for_each(|mut sender| sender.write_all(b"G").unwrap());
        let _next = connect();
        assert!(has_ended(&first));
    }

    #[test]
    fn known_connections_are_kept_and_counted() {
        let all = Arc::new(Connections::new(FILES));
        let client = IpAddr::from([127, 0, 0, 1]);
        let many: Vec<_> = (0..NEW).map(|_| all.begin(client, None)).collect();
        assert!(many[NEW - 1].is_admitted() && many[NEW - 1].is_admitted());
        assert!(!many[0].is_admitted(), "it had ended");
        let flood: Vec<_> = (0..1000).map(|_| all.begin(client, None)).collect();
        assert!(!has_ended(&many[NEW - 1]) && flood[999].is_admitted());
        let admitted = |_| {
            let connection = all.begin(client, None);
            assert!(connection.is_admitted());
            connection
        };
        let known: Vec<_> = (2..KNOWN).map(admitted).collect();
        assert!(!all.begin(client, None).is_admitted(), "too many");
        drop(many);
        drop((known, flood));
        assert_eq!(all.table().known, 0);
    }

    #[test]
    fn client_groups_ipv6_addresses_by_network() {
        let of = |text: &str| client(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
