//! Settings about proxies: trusted networks, and the header that names the client.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::units::Unit;
use crate::error::Error;

/// Set of networks. Written as `10.0.0.0/8, 2001:db8::/32, 192.0.2.7, unix`: networks in CIDR notation, single
/// addresses, and `unix` for every client of a Unix socket of the server. `none` is the empty set.
///
/// ```
/// # use weftwork::Networks;
/// let proxies: Networks = "10.0.0.0/8, ::1".parse()?;
/// assert!(proxies.contains("10.1.2.3".parse().ok()));
/// assert!(!proxies.contains(None));
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    networks: Vec<IpNet>,
    unix: bool,
}

impl Networks {
    /// Empty set.
    pub const NONE: Networks = Networks { networks: Vec::new(), unix: false };

    /// Returns whether the address is in one of the networks. An IPv4 address in IPv6 notation (`::ffff:10.0.0.1`)
    /// counts as the IPv4 address. `None` stands for the client of a Unix socket.
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => {
                let address = address.to_canonical();
                self.networks.iter().any(|network| network.contains(&address))
            }
            None => self.unix,
        }
    }

    /// Returns whether the set contains no address and no Unix socket.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let networks = self.networks.iter().map(IpNet::to_string);
        let all: Vec<String> = networks.chain(self.unix.then(|| "unix".to_owned())).collect();
        f.write_str(&all.join(","))
    }
}

impl FromStr for Networks {
    type Err = Error;

    fn from_str(text: &str) -> Result<Networks, Error> {
        Unit::parse(text).map_err(|wanted| Error::setting("networks", text, wanted))
    }
}

impl Unit for Networks {
    fn parse(text: &str) -> Result<Networks, &'static str> {
        let mut all = Networks::NONE;
        if matches!(text.trim(), "" | "none") {
            return Ok(all);
        }
        for word in text.split(',').map(str::trim) {
            match (word, word.parse::<IpAddr>()) {
                ("unix", _) => all.unix = true,
                (_, Ok(address)) => all.networks.push(canonical(address.into())),
                (_, Err(_)) => {
                    let network = word.parse::<IpNet>();
                    all.networks
                        .push(canonical(network.map_err(|_| "networks such as 10.0.0.0/8,::1,unix")?));
                }
            }
        }
        Ok(all)
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

/// Converts an IPv4 network in IPv6 notation, because lookups use IPv4: `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
fn canonical(network: IpNet) -> IpNet {
    match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
        (v4 @ IpAddr::V4(_), Some(bits)) => IpNet::new(v4, bits).unwrap_or(network),
        _ => network,
    }
}

/// Header in which trusted proxies name their client. Only one header is read. If two were read, a client could send the
/// header that its proxy does not overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, which most proxies send.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ForwardedHeader {
    /// Returns the name of the header, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        }
    }
}

impl Unit for ForwardedHeader {
    fn parse(text: &str) -> Result<ForwardedHeader, &'static str> {
        let all = [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded];
        let named = all.into_iter().find(|field| field.name().eq_ignore_ascii_case(text.trim()));
        named.ok_or("x-forwarded-for or forwarded")
    }
    fn show(&self) -> String {
        self.name().to_owned()
    }
}
