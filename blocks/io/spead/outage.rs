//! Packets that are dropped while the network takes none: an interface that is down or made again, a route or an
//! address that is missing for a time.
//!
//! Such errors pass. They do not end the flowgraph, whose other branches have no part in them: a sender counts its
//! packets as dropped, by cause, and reports the beginning and the end of the outage.

use crate::common::net::family::{Family, needs_scope};
use crate::common::net::interface::{Interface, Interfaces};
use fxgraph::event::EventKind;
use fxgraph::lock::lock;
use fxgraph::{BlockError, Counter, Env};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Shortest time between two looks at the interfaces.
const LOOK: Duration = Duration::from_millis(50);
/// Time without a dropped packet after which an outage is over. Of several destinations some may be out of reach.
const QUIET: Duration = Duration::from_secs(1);

/// Cause of dropped packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The interface is missing, down or without address.
    Interface,
    /// No route leads to the destination.
    Route,
    /// A firewall of this host rejects the packets.
    Firewall,
    /// The send buffer was full for too long.
    Full,
}

impl Cause {
    /// Returns the cause of `error` if it passes.
    fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::ENODEV | libc::ENXIO | libc::ENETDOWN | libc::EADDRNOTAVAIL => {
                Some(Self::Interface)
            }
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::ENONET => {
                Some(Self::Route)
            }
            libc::EPERM => Some(Self::Firewall),
            _ => None,
        }
    }
}

/// Counters of dropped packets.
struct Losses {
    interface: Counter,
    route: Counter,
    firewall: Counter,
    full: Counter,
    env: Env,
}

impl Losses {
    fn new(env: &Env) -> Self {
        let loss = |name, help| env.counters.loss(name, help);
        Self {
            interface: loss(
                "packets_dropped_interface",
                "packets dropped because the network interface is missing, down or without an address; see the events",
            ),
            route: loss(
                "packets_dropped_route",
                "packets dropped because no route leads to their destination; check `ip route get DESTINATION`",
            ),
            firewall: loss(
                "packets_dropped_firewall",
                "packets dropped because a firewall of this host rejects them",
            ),
            full: loss(
                "packets_dropped_full",
                "packets dropped because the send buffer was full for 1 s; check the interface and its flow control",
            ),
            env: env.clone(),
        }
    }

    fn counter(&self, cause: Cause) -> &Counter {
        match cause {
            Cause::Interface => &self.interface,
            Cause::Route => &self.route,
            Cause::Firewall => &self.firewall,
            Cause::Full => &self.full,
        }
    }

    fn report(&self, text: String) {
        self.env.events.add(EventKind::Warning, text);
    }
}

/// Source address and interface of a sender, and its outages. The threads of a sender share it.
pub struct Exit {
    /// Name or address of the interface; without it the kernel chooses.
    interface: Option<String>,
    family: Family,
    source: RwLock<Option<Source>>,
    /// `None` if every error ends the sender.
    losses: Option<Losses>,
    is_out: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    /// The reason why the interface passes no packets, at the last look.
    fault: Option<String>,
    outage: Option<Outage>,
}

struct Outage {
    began: Instant,
    newest: Instant,
    dropped: u64,
}

/// Source of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Address of the interface; the unspecified one of its family while the interface has none.
    pub ip: IpAddr,
    /// Number of the interface.
    pub index: u32,
}

impl Source {
    /// Whether a socket can send from the address: the kernel takes no address that it still checks for duplicates.
    fn is_usable(self) -> bool {
        let address = match self.ip {
            IpAddr::V6(ip) => {
                let scope = if needs_scope(self.ip) { self.index } else { 0 };
                SocketAddrV6::new(ip, 0, 0, scope).into()
            }
            IpAddr::V4(_) => SocketAddr::new(self.ip, 0),
        };
        !self.ip.is_unspecified() && UdpSocket::bind(address).is_ok()
    }
}

impl Exit {
    /// The exit through `interface` for packets of `family`. With `env` errors that pass are outages.
    ///
    /// # Errors
    /// If the interface does not exist, or has no address of `family`.
    pub fn new(
        family: Family,
        interface: Option<&str>,
        env: Option<&Env>,
    ) -> Result<Self, BlockError> {
        let find = |name| match env {
            Some(_) => Interface::for_stream(name, family),
            None => Interface::with_address(name, family).map(|(found, ip)| (found, Some(ip))),
        };
        let found = interface.map(find).transpose();
        let found = found.map_err(|error| BlockError::new(error.to_string()))?;
        if let (Some(env), Some(name)) = (env, interface) {
            crate::common::net::interface::report_faults([&name.to_owned()], &env.events);
        }
        let source = found.map(|(found, ip)| Source {
            ip: ip.unwrap_or(family.unspecified()),
            index: found.index,
        });
        Ok(Self {
            interface: interface.map(str::to_owned),
            family,
            source: RwLock::new(source),
            losses: env.map(Losses::new),
            is_out: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the source of packets; `None` if the kernel chooses.
    pub fn source(&self) -> Option<Source> {
        *self.source.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the interface again after an error: returns whether it has another number or address now, or passes packets
    /// again.
    pub fn has_changed(&self, now: Instant) -> bool {
        let (Some(asked), Some(before)) = (&self.interface, self.source()) else { return false };
        let mut state = self.state();
        if state.looked.is_some_and(|looked| now.duration_since(looked) < LOOK) {
            return false;
        }
        state.looked = Some(now);
        let all = Interfaces::read();
        let Some(found) = all.find(asked) else {
            state.fault = Some(format!("network interface `{asked}` does not exist"));
            return false;
        };
        let fault = found.fault().map(|fault| format!("network interface `{asked}` {fault}"));
        // The link-local address is there first, and does not replace one that comes later.
        let is_lower = |ip: &IpAddr| {
            needs_scope(*ip) && !(needs_scope(before.ip) || before.ip.is_unspecified())
        };
        let own = all.address(asked, self.family);
        let Some(first) = own.filter(|ip| !is_lower(ip)) else {
            let missing = || match own {
                None => format!("network interface `{asked}` has no {} address", self.family),
                Some(_) => format!(
                    "network interface `{asked}` has only a link-local address: give it back {} with `ip address add`",
                    before.ip
                ),
            };
            state.fault = Some(fault.unwrap_or_else(missing));
            return false;
        };
        let is_mended =
            std::mem::replace(&mut state.fault, fault).is_some() && state.fault.is_none();
        // One of several addresses is kept as long as the interface has it.
        let ip = if all.index_of(before.ip) == Some(found.index) { before.ip } else { first };
        let source = Source { ip, index: found.index };
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
        source != before || is_mended
    }

    /// Whether errors that pass are outages.
    pub fn survives(&self) -> bool {
        self.losses.is_some()
    }

    /// Returns the cause of `error` if it passes.
    pub fn passes(&self, error: &io::Error) -> Option<Cause> {
        self.losses.as_ref()?;
        // The kernel calls a source address that no interface has an invalid argument.
        let has_no_source = || {
            let is_known = self.state().fault.is_some();
            is_known || self.source().is_some_and(|source| !source.is_usable())
        };
        match error.raw_os_error() {
            Some(libc::EINVAL) => has_no_source().then_some(Cause::Interface),
            _ => Cause::of(error),
        }
    }

    /// Counts `packets` as dropped because of `error`.
    pub fn dropped(&self, packets: u64, cause: Cause, now: Instant, why: impl FnOnce() -> String) {
        let Some(losses) = &self.losses else { return };
        let mut state = self.state();
        // Without its interface a route is missing, too.
        let fault = state.fault.as_ref().filter(|_| cause != Cause::Firewall);
        losses.counter(if fault.is_some() { Cause::Interface } else { cause }).add(packets);
        if state.outage.is_none() {
            let why = fault.cloned().unwrap_or_else(why);
            losses.report(format!(
                "the network takes no packets, which are dropped until it does: {why}"
            ));
            self.is_out.store(true, Ordering::Relaxed);
        }
        let outage = state.outage.get_or_insert(Outage { began: now, newest: now, dropped: 0 });
        outage.newest = now;
        outage.dropped += packets;
    }

    /// Notes that the network has taken packets.
    pub fn sent(&self) {
        if self.is_out.load(Ordering::Relaxed) {
            let mut state = self.state();
            if state.outage.as_ref().is_some_and(|outage| outage.newest.elapsed() >= QUIET) {
                self.end(&mut state);
            }
        }
    }

    fn end(&self, state: &mut State) {
        let (Some(outage), Some(losses)) = (state.outage.take(), &self.losses) else { return };
        self.is_out.store(false, Ordering::Relaxed);
        // The cause of the next outage may be another one.
        state.fault = None;
        let seconds = outage.newest.duration_since(outage.began).as_secs_f64();
        losses.report(format!(
            "the network takes packets again: {} were dropped in {seconds:.1} s",
            outage.dropped
        ));
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.state());
        if let (Some(outage), Some(losses)) = (state.outage.take(), &self.losses) {
            let dropped = outage.dropped;
            losses.report(format!(
                "the sender ended while the network took no packets: {dropped} were dropped"
            ));
        }
    }
}
