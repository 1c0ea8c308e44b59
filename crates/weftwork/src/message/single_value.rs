//! Combines the lines of a field into one value or a list.

use super::request::Request;

/// Value of a field that must occur once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleValue<'r> {
    Absent,
    Value(&'r str),
    /// The field occurs twice, or is not text, so the value is ambiguous.
    Unclear,
}

impl<'r> SingleValue<'r> {
    pub(crate) fn value(self) -> Option<&'r str> {
        match self {
            SingleValue::Value(value) => Some(value),
            SingleValue::Absent | SingleValue::Unclear => None,
        }
    }
}

impl Request<'_> {
    /// Returns the value of the field `name`, which must occur once.
    pub(crate) fn only(&self, name: impl AsRef<str>) -> SingleValue<'_> {
        let mut values = self.header_values(name);
        match (values.next(), values.next()) {
            (None, _) => SingleValue::Absent,
            (Some(value), None) => {
                std::str::from_utf8(value).map_or(SingleValue::Unclear, SingleValue::Value)
            }
            (Some(_), Some(_)) => SingleValue::Unclear,
        }
    }

    /// Returns the credentials of `Authorization` for this scheme (RFC 9110 section 11.6.2), if the field occurs once
    /// and is not empty.
    pub(crate) fn credentials(&self, scheme: &str) -> Option<&str> {
        let (given, credentials) = self.only("authorization").value()?.split_once(' ')?;
        let credentials = credentials.trim_matches(' ');
        (given.eq_ignore_ascii_case(scheme) && !credentials.is_empty()).then_some(credentials)
    }

    /// Returns the token of `Authorization: Bearer` (RFC 6750 section 2.1). The token alone gives access, so look it up
    /// by its hash, or compare it in constant time. Returns None if there is no token, or the field occurs twice.
    /// [`BearerAuth`](crate::middleware::BearerAuth) verifies tokens for all routes of a router.
    ///
    /// ```
    /// use weftwork::{TestClient, prelude::*};
    ///
    /// # fn user_of(token: &str) -> Option<&'static str> { (token == "t0ken").then_some("Ada") }
    /// fn me(req: &mut Request) -> Response {
    ///     match req.bearer_token().and_then(user_of) {
    ///         Some(user) => text(format!("you are {user}\n")),
    ///         None => Response::new(StatusCode::UNAUTHORIZED).with_header("www-authenticate", r#"Bearer realm="accounts""#),
    ///     }
    /// }
    /// let mut client = TestClient::new(me);
    /// assert_eq!(client.get("/").header("authorization", "Bearer t0ken").send().text(), "you are Ada\n");
    /// assert_eq!(client.get("/").send().status, 401);
    /// ```
    pub fn bearer_token(&self) -> Option<&str> {
        self.credentials("bearer")
    }

    /// Returns the elements of the field `name`, which is a list over all its lines (RFC 9110 section 5.6.1).
    pub(crate) fn elements(&self, name: impl AsRef<str>) -> impl Iterator<Item = &[u8]> {
        let elements = self.header_values(name).flat_map(|value| value.split(|&byte| byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }

    /// Returns whether that list contains `token`, in any case.
    pub(crate) fn has_token(&self, name: impl AsRef<str>, token: &str) -> bool {
        self.elements(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }
}
