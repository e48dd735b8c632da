//! Fair shares of limited places among clients.

use fxgraph::lock::lock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Places shared by clients. A client may take as many places as it leaves free: half of all if it is alone, a third
/// if another client does the same.
#[derive(Clone)]
pub(crate) struct Shares {
    places: usize,
    held: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Places of one client, returned on drop.
pub(crate) struct Share {
    shares: Shares,
    client: IpAddr,
    count: usize,
}

impl Shares {
    pub fn new(places: usize) -> Self {
        Self { places, held: Arc::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        lock(&self.held)
    }

    /// Takes `count` places for `client`; its first request may take all that is free.
    pub fn take(&self, client: IpAddr, count: usize) -> Option<Share> {
        let mut held = self.held();
        let free = self.places - held.values().sum::<usize>();
        let own = held.get(&client).copied().unwrap_or_default();
        let is_fair = count <= free && (own == 0 || own + count <= free);
        if is_fair {
            held.insert(client, own + count);
        }
        drop(held);
        is_fair.then(|| Share { shares: self.clone(), client, count })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held();
        if let Some(own) = held.get_mut(&self.client) {
            *own -= self.count;
            if *own == 0 {
                held.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn client(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn client_with_many_requests_leaves_places_to_others() {
        let shares = Shares::new(24);
        let take = |number, count: usize| {
            (0..count).filter_map(|_| shares.take(client(number), 1)).collect::<Vec<_>>()
        };
        let first = take(1, 50);
        assert_eq!(first.len(), 12);
        let second = take(2, 50);
        assert_eq!(second.len(), 6);
        assert_eq!((3..6).map(|number| take(number, 1).len()).sum::<usize>(), 3);
        drop(first);
        assert_eq!(take(2, 50).len(), 6);
        drop(second);
        assert!(shares.held().is_empty());
    }

    #[test]
    fn first_request_of_a_client_gets_all_that_is_free() {
        let shares = Shares::new(100);
        let large = shares.take(client(1), 90).unwrap();
        assert!(shares.take(client(1), 20).is_none());
        assert!(shares.take(client(2), 11).is_none());
        assert!(shares.take(client(2), 10).is_some());
        drop(large);
        assert!(shares.take(client(2), 100).is_some());
    }
}
