//! The addresses of the upstream server, and when its name is looked up again.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::transport::log_queue::log_line;

/// Minimum time between two look-ups after failures. If a server does not answer, its resolver often does not
/// answer either.
const LOOKUP_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// Maximum time for which a request waits for a look-up of a name whose addresses are old. It then uses them.
const LOOKUP_WAIT_MAX: Duration = Duration::from_secs(1);

/// Resolves a name. Tests replace the system's resolver.
type Resolver = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// The addresses of one server.
pub(in crate::app::proxy) struct Addresses {
    /// Host with its port.
    pub(in crate::app::proxy) name: String,
    /// Whether the host is an address, which is not looked up because of its age.
    is_literal: bool,
    pub(in crate::app::proxy) resolve: Resolver,
    pub(in crate::app::proxy) age_max: Duration,
    state: Arc<Mutex<State>>,
}

struct State {
    known: Vec<SocketAddr>,
    /// Time of the last look-up.
    looked_up: Instant,
    /// Time of the last look-up, except the first one.
    looked_up_again: Option<Instant>,
    /// Whether a thread is looking the name up.
    is_looking_up: bool,
}

impl Addresses {
    /// Looks the name up. `name` is a host with its port.
    pub(super) fn of(name: String) -> Result<Addresses> {
        let known = resolve(&name)
            .map_err(|error| Error::usage(format!("cannot look up the server {name}: {error}")))?;
        let host = name.rsplit_once(':').map_or(&*name, |(host, _)| host).trim_matches(['[', ']']);
        let state = State { known, looked_up: Instant::now(), looked_up_again: None, is_looking_up: false };
        Ok(Addresses {
            is_literal: host.parse::<IpAddr>().is_ok(),
            name,
            resolve,
            age_max: Duration::from_secs(60),
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Returns the known addresses, the preferred one first.
    pub(in crate::app::proxy) fn known(&self) -> Vec<SocketAddr> {
        self.lock().known.clone()
    }

    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        self.lock().known.contains(&address)
    }

    /// Puts an address first, so that the next connection does not wait for addresses that do not answer.
    pub(super) fn prefer(&self, address: SocketAddr) {
        let mut state = self.lock();
        if let Some(at) = state.known.iter().position(|known| *known == address) {
            state.known[..=at].rotate_right(1);
        }
    }

    /// Looks the name up again if the last look-up is too old, and waits for up to `patience`. A resolver may
    /// take longer than that, so a thread of its own asks it. If the look-up fails, the addresses stay.
    pub(super) fn refresh(&self, patience: Duration) {
        if self.is_literal {
            return;
        }
        {
            let mut state = self.lock();
            if state.is_looking_up || state.looked_up.elapsed() < self.age_max {
                return;
            }
            state.is_looking_up = true;
        }
        let (shared, resolve, name) = (self.state.clone(), self.resolve, self.name.clone());
        let (done, is_done) = channel::<()>();
        let look_up = move || {
            let found = resolve(&name);
            if let Err(error) = &found {
                log_line!(Warn, "cannot look up the server {name} again, using its old addresses: {error}");
            }
            lock(&shared).finish(found.ok());
            drop(done);
        };
        match std::thread::Builder::new().name("weft-lookup".into()).spawn(look_up) {
            // The channel is disconnected when the thread ends.
            Ok(_) => drop(crate::blocking(move || is_done.recv_timeout(patience.min(LOOKUP_WAIT_MAX)))),
            Err(error) => {
                log_line!(Error, "cannot start a thread to look up the server {}: {error}", self.name);
                self.lock().finish(None);
            }
        }
    }

    /// Looks the name up again because no address answers. Returns `None` if the last look-up is too recent, or
    /// if the name is unknown.
    pub(super) fn look_up_after_failure(&self) -> Option<Vec<SocketAddr>> {
        {
            let mut state = self.lock();
            if state.looked_up_again.is_some_and(|at| at.elapsed() < LOOKUP_INTERVAL_MIN) {
                return None;
            }
            state.looked_up_again = Some(Instant::now());
        }
        let (resolve, name) = (self.resolve, self.name.clone());
        // The look-up blocks for as long as the resolver likes, and needs more stack than a fiber has.
        let found = crate::blocking(move || resolve(&name)).ok()?;
        self.lock().update(&found);
        Some(found)
    }

    /// Replaces the addresses.
    #[cfg(test)]
    pub(in crate::app::proxy) fn set(&self, known: Vec<SocketAddr>) {
        self.lock().known = known;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Ends a look-up because of age.
    fn finish(&mut self, found: Option<Vec<SocketAddr>>) {
        self.is_looking_up = false;
        self.looked_up = Instant::now();
        self.looked_up_again = Some(self.looked_up);
        if let Some(found) = found {
            self.update(&found);
        }
    }

    /// Takes the addresses that were found. Addresses that are known keep their order, so that the one that
    /// answered last stays first.
    fn update(&mut self, found: &[SocketAddr]) {
        self.known.retain(|known| found.contains(known));
        let new: Vec<SocketAddr> =
            found.iter().filter(|found| !self.known.contains(found)).copied().collect();
        self.known.extend(new);
    }
}

fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = name.to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
}
