//! Negotiates the content coding (RFC 9110 section 12.5.3).

use weftwork_wire::fields::quality;

use crate::message::Request;

/// A content coding that this library can encode and decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    /// Codings in the order of preference if the client has none, by cost and gain.
    pub(crate) const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Coding> {
        // RFC 9110 section 8.4.1.3
        let name = if name.eq_ignore_ascii_case("x-gzip") { "gzip" } else { name };
        Coding::ALL.into_iter().find(|coding| coding.name().eq_ignore_ascii_case(name))
    }

    /// Returns the coding that the client prefers. `None` if the client prefers the uncompressed bytes.
    pub(super) fn wanted_by(req: &Request<'_>) -> Option<Coding> {
        Coding::wanted_in(&req.header_values("accept-encoding").collect::<Vec<_>>())
    }

    fn wanted_in(lines: &[&[u8]]) -> Option<Coding> {
        let wanted = |coding: Coding| quality(lines, coding.name());
        // `max_by_key` returns the last of equals, so the order is reversed.
        let best = Coding::ALL.into_iter().rev().max_by_key(|&coding| wanted(coding))?;
        (wanted(best) > 0 && wanted(best) >= quality(lines, "identity")).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    //! Tests each way in which clients write Accept-Encoding.

    use super::*;

    #[track_caller]
    fn check(lines: &[&str], wanted: Option<Coding>) {
        let bytes: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        assert_eq!(Coding::wanted_in(&bytes), wanted, "{lines:?}");
    }

    #[test]
    fn what_clients_say() {
        use Coding::{Brotli, Gzip, Zstd};
        check(&[], None);
        check(&[""], None);
        check(&["gzip"], Some(Gzip));
        check(&["GZip"], Some(Gzip));
        check(&["x-gzip"], Some(Gzip));
        check(&["gzip, deflate, br, zstd"], Some(Zstd));
        check(&["gzip, deflate, br"], Some(Brotli));
        check(&["gzip", "br"], Some(Brotli));
        check(&["gzip;q=1.0, br;q=0.9"], Some(Gzip));
        check(&["br;q=0.5,gzip;q=0.5"], Some(Brotli));
        check(&["br ; q=0.1 , gzip ; Q=0.123"], Some(Gzip));
        check(&["*"], Some(Zstd));
        check(&["*, zstd;q=0, br;q=0"], Some(Gzip));
        check(&["*;q=0"], None);
        check(&["gzip;q=0"], None);
        check(&["gzip;q=0.000"], None);
        check(&["identity"], None);
        check(&["identity, gzip;q=0.5"], None);
        check(&["identity;q=0.5, gzip;q=0.5"], Some(Gzip));
        check(&["identity;q=0, gzip;q=0.001"], Some(Gzip));
        check(&["deflate, compress, foo"], None);
    }

    /// An invalid weight must not count as acceptance.
    #[test]
    fn broken_weights_refuse() {
        for weight in ["2", "1.5", "-1", "", "0.1234", "x", "0,5x", "+1", "1.001", "NaN", "0.5.5"] {
            check(&[&format!("gzip;q={weight}")], None);
        }
        check(&["gzip;level=9"], None);
        check(&["gzip;"], None);
    }
}
