//! How the fields and the body of a response that is made already are looked at and changed.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::response::{Part, Payload, Response};

/// For middleware, which gets a response that somebody else made.
impl Response {
    /// Replaces the status.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// The first value of the field `name`; `Content-Type` counts too.
    pub fn field(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.field_values(name).next()
    }

    /// Every value of the field `name`, in order.
    pub fn field_values(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        let content_type = self.content_type.as_ref().filter(|_| name == header::CONTENT_TYPE);
        let others = self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value);
        content_type.into_iter().chain(others)
    }

    /// Replaces every field `name` by this one.
    pub fn set_field(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove_field(&name);
        self.append_field(name, value);
    }

    /// Adds a field; those of that name which are there already stay (but for `Content-Type`, of which there
    /// is one).
    pub fn append_field(&mut self, name: HeaderName, value: HeaderValue) {
        if name == header::CONTENT_TYPE {
            self.content_type = Some(value);
        } else {
            self.fields.push((name, value));
        }
    }

    /// Removes every field `name`, and gives the first value of them.
    pub fn remove_field(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        if name == header::CONTENT_TYPE {
            return self.content_type.take();
        }
        let first = self.fields.iter().position(|(field, _)| field == name)?;
        let (_, value) = self.fields.remove(first);
        self.fields.retain(|(field, _)| field != name);
        Some(value)
    }

    /// How many bytes the body has, when that is known before it is sent: of a stream it is not, even where a
    /// `Content-Length` field promises some number.
    pub fn body_bytes(&self) -> Option<u64> {
        match &self.payload {
            Payload::Empty => Some(0),
            Payload::Bytes(bytes) => Some(bytes.len() as u64),
            Payload::File { count, .. } => Some(*count),
            Payload::Parts(parts) => Some(parts.iter().map(Part::count).sum()),
            _ => None,
        }
    }

    /// The body, when all of it is in memory.
    pub fn body(&self) -> Option<&Bytes> {
        match &self.payload {
            Payload::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether the body is produced later, while it is sent.
    pub fn is_streaming(&self) -> bool {
        self.body_bytes().is_none()
    }

    /// The same with another body, whatever the first one was. Its fields stay, but a `Content-Length`.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Response {
        self.remove_field(&header::CONTENT_LENGTH);
        self.payload = Payload::Bytes(body.into());
        self
    }

    /// The same without a body. Its fields stay, but a `Content-Length`.
    #[must_use]
    pub fn without_body(mut self) -> Response {
        self.remove_field(&header::CONTENT_LENGTH);
        self.payload = Payload::Empty;
        self
    }
}
