//! Name resolution.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use crate::blocking::blocking;

/// Types that name one or more socket addresses, the counterpart of std's `ToSocketAddrs`. The system's
/// resolver blocks, so it runs on a thread of [`blocking`](crate::blocking()).
pub trait Resolve {
    /// Returns the addresses in the order in which they should be tried.
    ///
    /// # Errors
    ///
    /// Fails if the text is not `host:port`, or if the host is unknown.
    fn resolve(&self) -> io::Result<Vec<SocketAddr>>;
}

/// Returns the addresses of `host`, a name or an address, with `port`. Addresses are parsed without a look-up.
///
/// ```
/// use weftwork_fiber::net::lookup;
///
/// let addresses = weftwork_fiber::run(|| lookup("127.0.0.1", 80))??;
/// assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Fails if the host is unknown.
pub fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    blocking(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
}

impl Resolve for str {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.parse() {
            return Ok(vec![address]);
        }
        let malformed = || io::Error::new(io::ErrorKind::InvalidInput, "invalid address: expected host:port");
        let (host, port) = self.rsplit_once(':').ok_or_else(malformed)?;
        lookup(host, port.parse().map_err(|_| malformed())?)
    }
}

impl Resolve for String {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        self.as_str().resolve()
    }
}

impl Resolve for (String, u16) {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        lookup(&self.0, self.1)
    }
}

impl Resolve for (&str, u16) {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        lookup(self.0, self.1)
    }
}

impl Resolve for [SocketAddr] {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.to_vec())
    }
}

impl Resolve for Vec<SocketAddr> {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.clone())
    }
}

impl<T: Resolve + ?Sized> Resolve for &T {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        (**self).resolve()
    }
}

macro_rules! resolve_to_itself {
    ($($address:ty),*) => { $(
        impl Resolve for $address {
            fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
                Ok(vec![SocketAddr::from(*self)])
            }
        }
    )* };
}

resolve_to_itself!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

/// Calls `attempt` with each address until one succeeds. Otherwise returns the last error.
pub(super) fn try_each<T>(
    addresses: impl Resolve,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut result = Err(io::Error::new(io::ErrorKind::InvalidInput, "the name has no address"));
    for address in addresses.resolve()? {
        result = attempt(address);
        if result.is_ok() {
            break;
        }
    }
    result
}
