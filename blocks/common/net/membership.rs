//! Multicast groups of receivers, which are joined again when an interface is made again or its address moves.
//!
//! A group is joined on an interface by its number. The kernel forgets the groups of an interface that is removed, such as
//! by a driver that is loaded again or a virtual function that is made again, and the interface that follows it has another
//! number. Notices of the kernel (rtnetlink) say when to look: addresses and names are read only then.

use super::family::{self, Family, needs_scope};
use super::interface::Interfaces;
use fxgraph::event::{BlockEvents, EventKind};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use socket2::Socket;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a thread reads the notices of the kernel.
const LOOK: Duration = Duration::from_millis(20);
/// Time after which a group that could not be joined is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Notices read at once: a flood of them does not hold the thread.
const MOST_NOTICES: usize = 64;

/// A multicast group that a socket has joined.
#[derive(Clone, Debug)]
pub struct Membership {
    group: IpAddr,
    /// Senders whose packets are received; empty: all.
    sources: Arc<[IpAddr]>,
    /// Name or address of the interface; without it the route to the group decides.
    interface: Option<String>,
    /// Number of the interface on which the group is joined; 0 if it is not known. Without a named interface the kernel
    /// chooses it by the route, and this is the one with the source address of that route.
    index: u32,
    /// Whether the route to the group has moved to another interface: it may move back.
    is_moved: bool,
}

impl Membership {
    /// Joins `group` with `socket`, for packets of `sources` only if there are any.
    ///
    /// # Errors
    /// If no interface is found, or if the kernel does not join the group.
    pub fn join(
        socket: &Socket,
        group: IpAddr,
        interface: Option<&str>,
        sources: &Arc<[IpAddr]>,
    ) -> io::Result<Self> {
        let (interface, sources) = (interface.map(str::to_owned), Arc::clone(sources));
        let mut membership = Self { group, sources, interface, index: 0, is_moved: false };
        membership.index = membership.present(&Interfaces::read()).unwrap_or(0);
        membership.enter(socket)?;
        Ok(membership)
    }

    /// Number of the interface that the group belongs on now.
    fn present(&self, all: &Interfaces) -> Option<u32> {
        if let Some(asked) = &self.interface {
            return all.find(asked).map(|found| found.index);
        }
        let probe = UdpSocket::bind((Family::of(self.group).unspecified(), 0)).ok()?;
        probe.connect((self.group, 9)).ok()?;
        match probe.local_addr().ok()? {
            SocketAddr::V6(of_route) if of_route.scope_id() > 0 => Some(of_route.scope_id()),
            of_route => all.index_of(of_route.ip()),
        }
    }

    /// Number of the interface for the kernel; 0: by the route.
    fn on(&self) -> u32 {
        if self.interface.is_some() { self.index } else { 0 }
    }

    fn enter(&self, socket: &Socket) -> io::Result<()> {
        if self.sources.is_empty() {
            return family::join(socket, self.group, self.on());
        }
        let mut sources = self.sources.iter();
        sources.try_for_each(|source| family::join_source(socket, self.group, *source, self.on()))
    }

    /// Joins the group again if its interface is another one now. Returns whether it is joined.
    fn follow(&mut self, socket: &Socket, all: &Interfaces, reports: &Reports) -> bool {
        let present = self.present(all);
        if let Some(name) = &self.interface {
            let state = all.find(name).map(|found| (found.index, found.fault()));
            reports.note(name, self.index, state);
        }
        let Some(index) = present else {
            // The route may come some time after its interface.
            return self.interface.is_some() || self.index == 0 || exists(self.index);
        };
        // A group without a named interface stays where it is as long as there is one.
        let is_there = self.index == 0 || exists(self.index);
        let stays = self.interface.is_none() && !self.is_moved && is_there;
        if index == self.index || stays {
            return true;
        }
        // The socket has the group also on an interface that is gone, and the kernel limits the groups of a socket.
        self.leave(socket);
        let old = std::mem::replace(&mut self.index, index);
        let entered = self.bind_to_interface(socket).and_then(|()| self.enter(socket));
        let Err(error) = entered else {
            self.is_moved = true;
            return true;
        };
        tracing::warn!(group = %self.group, interface = index, "cannot join again: {error}");
        self.leave(socket);
        self.index = old;
        false
    }

    /// Binds `socket` to the interface of a link-local group: the kernel has bound it to the former one with the address.
    fn bind_to_interface(&self, socket: &Socket) -> io::Result<()> {
        if !needs_scope(self.group) {
            return Ok(());
        }
        let bound = socket.bind_device_by_index_v6(NonZeroU32::new(self.index));
        bound.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => io::Error::other(
                "a link-local group needs the capability CAP_NET_RAW for this; start the program again",
            ),
            _ => error,
        })
    }

    fn leave(&self, socket: &Socket) {
        let leave = |index| family::leave(socket, self.group, index);
        // By the number first: the route may lead elsewhere by now, and that would leave another membership, or none.
        let _ = leave(self.index).or_else(|_| leave(self.on()));
    }
}

/// Returns whether this host has an interface with the number `index`.
fn exists(index: u32) -> bool {
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return true };
    rustix::net::netdevice::index_to_name(&socket, index).is_ok()
}

/// Number of an interface, and the reason why it passes no packets; `None` if it is gone.
type InterfaceState = Option<(u32, Option<&'static str>)>;

/// Reports interfaces of multicast groups that are gone, back, down or others, once for all threads of a source.
#[derive(Clone, Default)]
pub struct Reports {
    events: BlockEvents,
    /// State of each interface at the last report.
    known: Arc<Mutex<BTreeMap<String, InterfaceState>>>,
}

impl Reports {
    /// Reports to `events`.
    #[must_use]
    pub fn new(events: &BlockEvents) -> Self {
        Self { events: events.clone(), known: Arc::default() }
    }

    /// Notes the present state of the interface `name`, which had the number `joined` when a group was joined.
    fn note(&self, name: &str, joined: u32, present: InterfaceState) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.entry(name.to_owned()).or_insert(Some((joined, None)));
        if std::mem::replace(before, present) == present {
            return;
        }
        drop(known);
        let text = match present {
            None => format!(
                "network interface `{name}` is gone; its multicast groups are joined again when it is back"
            ),
            Some((_, Some(fault))) => {
                format!(
                    "network interface `{name}` {fault}; its multicast groups receive no packets meanwhile"
                )
            }
            Some((_, None)) => format!(
                "network interface `{name}` is there again; its multicast groups are joined on it"
            ),
        };
        self.events.add(EventKind::Warning, text);
    }
}

/// Keeps the multicast groups of the sockets of a thread.
pub struct Keeper {
    /// Notices of the kernel about interfaces and their addresses; `None` if it gives none.
    notices: Option<OwnedFd>,
    reports: Reports,
    next: Instant,
    /// Whether the interfaces must be looked at without a notice.
    is_due: bool,
}

impl Keeper {
    /// Begins to keep groups. Changes since they were joined show in the first look.
    #[must_use]
    pub fn new() -> Self {
        let notices = subscribe().map_err(|error| {
            tracing::warn!("the kernel gives no notices of interfaces, multicast groups are not joined again: {error}");
        });
        Self {
            notices: notices.ok(),
            reports: Reports::default(),
            next: Instant::now(),
            is_due: true,
        }
    }

    /// Reports interfaces with `reports`.
    pub fn report(&mut self, reports: Reports) {
        self.reports = reports;
    }

    /// Joins groups again whose interface has changed, if a look is due.
    pub fn look<'a>(
        &mut self,
        now: Instant,
        groups: impl Iterator<Item = (&'a Socket, &'a mut Membership)>,
    ) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        let Some(notices) = &self.notices else { return };
        if !(has_notices(notices) | std::mem::take(&mut self.is_due)) {
            return;
        }
        let all = Interfaces::read();
        for (socket, membership) in groups {
            if !membership.follow(socket, &all, &self.reports) {
                (self.is_due, self.next) = (true, now + RETRY);
            }
        }
        // Many groups take long to look at, and many notices may come, also of interfaces of containers.
        self.next = self.next.max(Instant::now() + 20 * now.elapsed());
    }
}

impl Default for Keeper {
    fn default() -> Self {
        Self::new()
    }
}

fn subscribe() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let of_v4 = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV4_ROUTE;
    let of_v6 = libc::RTMGRP_IPV6_IFADDR | libc::RTMGRP_IPV6_ROUTE;
    let groups = (libc::RTMGRP_LINK | of_v4 | of_v6) as u32;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Reads the notices that have come: whether there are any, also if the kernel had to drop some.
fn has_notices(socket: &OwnedFd) -> bool {
    let mut any = false;
    for _ in 0..MOST_NOTICES {
        let mut notice = [0_u8; 64];
        match rustix::net::recv(socket, &mut notice, RecvFlags::DONTWAIT) {
            Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => any = true,
            Err(_) => break,
        }
    }
    any
}
