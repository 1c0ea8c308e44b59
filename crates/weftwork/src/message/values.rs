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

    /// What `Authorization` has behind this scheme (RFC 9110 section 11.6.2), if it comes once and has anything.
    pub(crate) fn credentials(&self, scheme: &str) -> Option<&str> {
        let (given, credentials) = self.only("authorization").value()?.split_once(' ')?;
        let credentials = credentials.trim_matches(' ');
        (given.eq_ignore_ascii_case(scheme) && !credentials.is_empty()).then_some(credentials)
    }

    /// The token of `Authorization: Bearer` (RFC 6750 section 2.1). Whoever has it is let in: look it up by its hash, or
    /// compare it in a time that does not depend on how much of it is right. None: there is none, or the field comes twice.
    ///
    /// ```
    /// use weftwork::{TestClient, prelude::*};
    ///
    /// # fn user_of(token: &str) -> Option<&'static str> { (token == "t0ken").then_some("Ada") }
    /// fn me(req: &mut Request) -> Response {
    ///     match req.bearer_token().and_then(user_of) {
    ///         Some(user) => text(format!("you are {user}\n")),
    ///         None => Response::new(StatusCode::UNAUTHORIZED)
    ///             .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
    ///     }
    /// }
    /// let mut client = TestClient::new(me);
    /// assert_eq!(client.get("/").header("authorization", "Bearer t0ken").send().text(), "you are Ada\n");
    /// assert_eq!(client.get("/").send().status, 401);
    /// ```
    pub fn bearer_token(&self) -> Option<&str> {
        self.credentials("bearer")
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
