//! The QR code of the server's address in the local network.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use weftwork::{Address, Running};

use crate::say_in_time;

/// Address for documentation (RFC 5737). Connecting a UDP socket to it sends nothing, and chooses the local address.
const OUTSIDE: (&str, u16) = ("192.0.2.1", 9);

/// Prints the address and its QR code. Without such an address, logs a warning.
pub(crate) fn show(running: &Running) {
    let listeners = running.addresses().iter().filter_map(|address| match address {
        Address::Tcp(tcp) => Some((*tcp, if running.has_tls(address) { "https" } else { "http" })),
        _ => None,
    });
    let Some(url) = network_url(listeners, local_ip()) else {
        return log::warn!(
            "--qr: no address can be reached from a local network: --host 0.0.0.0 adds one, if there is a network"
        );
    };
    match picture(&url) {
        Ok(picture) => say_in_time(format_args!("in the local network: {url}\n{picture}")),
        Err(error) => log::warn!("--qr: {url} has no QR code: {error}"),
    }
}

/// Returns the URL of the first listener that others can reach. `local` is the address of this machine in its network.
fn network_url(
    listeners: impl Iterator<Item = (SocketAddr, &'static str)>,
    local: Option<IpAddr>,
) -> Option<String> {
    let mut urls = listeners.filter_map(|(listener, scheme)| {
        let ip = match listener.ip() {
            ip if ip.is_unspecified() => local?,
            ip if ip.is_loopback() => return None,
            ip => ip,
        };
        Some(format!("{scheme}://{}/", SocketAddr::new(ip, listener.port())))
    });
    urls.next()
}

/// Returns the address from which this machine reaches others. Returns `None` without a network.
fn local_ip() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(OUTSIDE).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the code in block characters, which are its light modules: a terminal has light text on dark. Phones read the inverse,
/// too.
fn picture(url: &str) -> Result<String, qrcode::types::QrError> {
    let code = QrCode::new(url)?;
    Ok(code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build())
}

#[cfg(test)]
mod tests {
    //! Tests which address is shown, and that the code is a square with finder patterns.

    use super::*;

    #[test]
    fn the_first_address_that_others_reach() {
        let local = Some("192.168.1.7".parse().unwrap());
        let url = |listeners: &[&str], local| {
            network_url(listeners.iter().map(|listener| (listener.parse().unwrap(), "http")), local)
        };
        assert_eq!(url(&["127.0.0.1:80", "[::1]:80"], local), None);
        assert_eq!(url(&["127.0.0.1:80", "0.0.0.0:81"], local).as_deref(), Some("http://192.168.1.7:81/"));
        assert_eq!(url(&["[::]:8080"], local).as_deref(), Some("http://192.168.1.7:8080/"));
        assert_eq!(url(&["0.0.0.0:81", "10.1.2.3:82"], None).as_deref(), Some("http://10.1.2.3:82/"));
        assert_eq!(url(&["[fd00::1]:80"], None).as_deref(), Some("http://[fd00::1]:80/"));
    }

    #[test]
    fn the_code_is_a_square_with_a_quiet_zone() {
        let code = picture("http://192.168.1.7:8080/").unwrap();
        let lines: Vec<Vec<char>> = code.lines().map(|line| line.chars().collect()).collect();
        let width = lines[0].len();
        assert!(lines.iter().all(|line| line.len() == width), "{code}");
        assert!(lines.len() == width.div_ceil(2) && (width - 8 - 17).is_multiple_of(4), "{code}");
        assert!(lines[0].iter().all(|&block| block == '\u{2588}'), "{code}");
        // The finder pattern begins after four light modules: seven dark ones over a ring.
        let row: String = lines[2][..11].iter().collect();
        assert_eq!(row, "████ ▄▄▄▄▄ ", "{code}");
    }
}
