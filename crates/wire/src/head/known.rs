//! The fields that the codec itself reads.

/// A field that frames the message or routes it. All others are for the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Host,
    Expect,
    Upgrade,
    Connection,
    ContentLength,
    TransferEncoding,
}

impl Known {
    /// The field of this name, a token. First letter and length come first: they tell nearly all other fields
    /// of a request from these, for a few instructions each.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Option<Known> {
        match (name.first()? | 0x20, name.len()) {
            (b'h', 4) => is(name, b"host").then_some(Known::Host),
            (b'e', 6) => is(name, b"expect").then_some(Known::Expect),
            (b'u', 7) => is(name, b"upgrade").then_some(Known::Upgrade),
            (b'c', 10) => is(name, b"connection").then_some(Known::Connection),
            (b'c', 14) => is(name, b"content-length").then_some(Known::ContentLength),
            (b't', 17) => is(name, b"transfer-encoding").then_some(Known::TransferEncoding),
            _ => None,
        }
    }
}

/// Compares without regard to case: the bit folds letters, and of the bytes of a token it makes no other one a
/// letter or a hyphen. On arrays that is a handful of instructions on whole words.
#[inline(always)]
fn is<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    <&[u8; N]>::try_from(name).is_ok_and(|name| name.map(|byte| byte | 0x20) == *lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, want: Option<Known>) {
        for name in [name.to_owned(), name.to_uppercase(), name.to_lowercase()] {
            assert_eq!(Known::of(name.as_bytes()), want, "{name}");
        }
    }

    #[test]
    fn rfc9110_5_1_names_know_no_case() {
        check("Host", Some(Known::Host));
        check("Expect", Some(Known::Expect));
        check("Upgrade", Some(Known::Upgrade));
        check("Connection", Some(Known::Connection));
        check("Content-Length", Some(Known::ContentLength));
        check("Transfer-Encoding", Some(Known::TransferEncoding));
    }

    #[test]
    fn names_that_look_alike_are_others() {
        for name in ["", "h", "Hast", "Hosts", "Expert", "Upgrate", "Connectiom", "Content-Lengti"] {
            check(name, None);
        }
        for name in ["Transfer-Encodinf", "Content+Length", "Content_Length", "User-Agent"] {
            check(name, None);
        }
    }
}
