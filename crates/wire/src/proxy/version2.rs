//! The binary form: a signature, what it is, how long it is, two addresses, and what else the proxy knows (TLVs).

use core::net::{IpAddr, SocketAddr};

use super::{Proxied, ProxyEvent, ProxyFault};

/// Chosen so that no HTTP server takes it for a request (section 2.2).
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length.
const FIXED_BYTES: usize = SIGNATURE.len() + 4;

/// The TLV that holds a CRC32c of the whole header (section 2.2.3).
const CRC32C: u8 = 0x03;

pub(super) fn read(bytes: &[u8], bytes_max: usize) -> Result<ProxyEvent, ProxyFault> {
    let Some(&[command, family, high, low]) =
        bytes.get(SIGNATURE.len()..).and_then(|rest| rest.first_chunk::<4>())
    else {
        return Ok(ProxyEvent::NeedMore);
    };
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if len > bytes_max {
        return Err(ProxyFault::TooLong);
    }
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyFault::Malformed),
    };
    let Some(header) = bytes.get(..len) else { return Ok(ProxyEvent::NeedMore) };
    // Section 2.2: what is behind a LOCAL command is discarded, whatever the family says it is.
    if is_local {
        return Ok(ProxyEvent::Header(len, Proxied::Itself));
    }
    let (named, tlvs) = addresses(family, &header[FIXED_BYTES..])?;
    check_tlvs(header, tlvs)?;
    Ok(ProxyEvent::Header(len, named))
}

/// What the family's addresses say, and what is behind them.
fn addresses(family: u8, body: &[u8]) -> Result<(Proxied, &[u8]), ProxyFault> {
    const UNIX_BYTES: usize = 2 * 108;
    match family {
        0x00 => Ok((Proxied::Unnamed, body)),
        // Datagrams: HTTP/3 that the proxy has translated.
        0x11 | 0x12 => client::<4, 12>(body),
        0x21 | 0x22 => client::<16, 36>(body),
        0x31 | 0x32 => {
            let tlvs = body.get(UNIX_BYTES..).ok_or(ProxyFault::Malformed)?;
            Ok((Proxied::Unnamed, tlvs))
        }
        // Section 2.2: other values are invalid.
        _ => Err(ProxyFault::Malformed),
    }
}

/// Two addresses of `N` bytes, then two ports: `ALL` bytes together.
fn client<const N: usize, const ALL: usize>(body: &[u8]) -> Result<(Proxied, &[u8]), ProxyFault>
where
    IpAddr: From<[u8; N]>,
{
    let (block, tlvs) = body.split_first_chunk::<ALL>().ok_or(ProxyFault::Malformed)?;
    let ip = |at: usize| {
        let mut octets = [0; N];
        octets.copy_from_slice(&block[at..at + N]);
        IpAddr::from(octets)
    };
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    let source = SocketAddr::new(ip(0), port(2 * N));
    let destination = SocketAddr::new(ip(N), port(2 * N + 2));
    Ok((Proxied::Client { source, destination }, tlvs))
}

/// Each TLV is a type, a length and so many bytes. They are skipped, except for one checksum.
fn check_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<(), ProxyFault> {
    let mut is_summed = false;
    while let [kind, high, low, rest @ ..] = tlvs {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, next) = rest.split_at_checked(len).ok_or(ProxyFault::Malformed)?;
        if *kind == CRC32C {
            if is_summed {
                return Err(ProxyFault::Malformed);
            }
            is_summed = true;
            let sum = value.try_into().map(u32::from_be_bytes).map_err(|_| ProxyFault::Malformed)?;
            let at = header.len() - rest.len();
            if sum != crc32c_without(header, at..at + len) {
                return Err(ProxyFault::Checksum);
            }
        }
        tlvs = next;
    }
    // One or two bytes are left of what would be a TLV.
    if tlvs.is_empty() { Ok(()) } else { Err(ProxyFault::Malformed) }
}

/// CRC32c (RFC 3720 appendix B.4) with the bytes of the sum itself counted as zero. One bit at a time: headers
/// are short, once a connection, and hardly any has a sum.
fn crc32c_without(bytes: &[u8], zeroed: core::ops::Range<usize>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for (at, &byte) in bytes.iter().enumerate() {
        crc ^= if zeroed.contains(&at) { 0 } else { u32::from(byte) };
        for _ in 0..8 {
            crc = crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
