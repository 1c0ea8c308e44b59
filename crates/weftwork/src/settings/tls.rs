//! Settings about TLS.

use std::fmt;

use super::units::Unit;

/// A version of TLS. Older versions are not supported (RFC 8996).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        })
    }
}

impl Unit for TlsVersion {
    fn parse(text: &str) -> Result<TlsVersion, &'static str> {
        match text.trim() {
            "1.2" => Ok(TlsVersion::Tls12),
            "1.3" => Ok(TlsVersion::Tls13),
            _ => Err("1.2 or 1.3"),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}
