//! What do the lines of one field say together: one value, or a list?

use super::request::Request;

/// What a field says that has to come once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only<'r> {
    Absent,
    Value(&'r str),
    /// Twice, or not as text: which one is meant is a guess.
    Unclear,
}

impl<'r> Only<'r> {
    pub(crate) fn value(self) -> Option<&'r str> {
        match self {
            Only::Value(value) => Some(value),
            Only::Absent | Only::Unclear => None,
        }
    }
}

impl Request<'_> {
    /// The value of the field `name`, which has to come once.
    pub(crate) fn only(&self, name: impl AsRef<str>) -> Only<'_> {
        let mut values = self.header_values(name);
        match (values.next(), values.next()) {
            (None, _) => Only::Absent,
            (Some(value), None) => std::str::from_utf8(value).map_or(Only::Unclear, Only::Value),
            (Some(_), Some(_)) => Only::Unclear,
        }
    }

    /// The elements of the field `name`, which is a list: those of all its lines (RFC 9110 section 5.6.1).
    pub(crate) fn elements(&self, name: impl AsRef<str>) -> impl Iterator<Item = &[u8]> {
        let elements = self.header_values(name).flat_map(|value| value.split(|&byte| byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }

    /// Whether that list has `token`, in whatever case.
    pub(crate) fn has_token(&self, name: impl AsRef<str>, token: &str) -> bool {
        self.elements(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }
}
