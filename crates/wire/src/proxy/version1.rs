//! The text form: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443` and CRLF.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use super::{Proxied, ProxyEvent, ProxyFault};
use crate::grammar::decimal;

pub(super) const START: &[u8] = b"PROXY ";

/// The longest line that the specification allows, its CRLF included (section 2.1).
const LINE_BYTES_MAX: usize = 107;

pub(super) fn read(bytes: &[u8], bytes_max: usize) -> Result<ProxyEvent, ProxyFault> {
    let most = bytes_max.min(LINE_BYTES_MAX);
    let seen = &bytes[..bytes.len().min(most)];
    match seen.windows(2).position(|two| two == b"\r\n") {
        Some(end) => line(&seen[..end]).map(|proxied| ProxyEvent::Header(end + 2, proxied)),
        None if bytes.len() >= most => Err(ProxyFault::TooLong),
        None => Ok(ProxyEvent::NeedMore),
    }
}

fn line(line: &[u8]) -> Result<Proxied, ProxyFault> {
    let line = str::from_utf8(line).map_err(|_| ProxyFault::Malformed)?;
    let mut words = line.split(' ').skip(1);
    match words.next() {
        Some("TCP4") => client::<Ipv4Addr>(words),
        Some("TCP6") => client::<Ipv6Addr>(words),
        // Section 2.1: whatever else stands in the line is ignored.
        Some("UNKNOWN") => Ok(Proxied::Unnamed),
        _ => Err(ProxyFault::Malformed),
    }
}

fn client<'l, A>(mut words: impl Iterator<Item = &'l str>) -> Result<Proxied, ProxyFault>
where
    A: FromStr + Into<IpAddr>,
{
    let mut word = || words.next().ok_or(ProxyFault::Malformed);
    let (from, to, from_port, to_port) = (word()?, word()?, word()?, word()?);
    if words.next().is_some() {
        return Err(ProxyFault::Malformed);
    }
    Ok(Proxied::Client {
        source: SocketAddr::new(address::<A>(from)?, port(from_port)?),
        destination: SocketAddr::new(address::<A>(to)?, port(to_port)?),
    })
}

fn address<A: FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, ProxyFault> {
    text.parse::<A>().map(Into::into).map_err(|_| ProxyFault::Malformed)
}

/// Decimal, without leading zeros.
fn port(text: &str) -> Result<u16, ProxyFault> {
    let number = decimal(text.as_bytes()).map_err(|_| ProxyFault::Malformed)?;
    if text.len() > 1 && text.starts_with('0') {
        return Err(ProxyFault::Malformed);
    }
    u16::try_from(number).map_err(|_| ProxyFault::Malformed)
}
