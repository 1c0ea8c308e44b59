//! One event as text. Any content stays a single event.

use std::time::Duration;

use bytes::Bytes;

/// An event for the `EventSource` of a page: data, and optionally a name, an id and the reconnection time.
///
/// Data may have any number of lines. Names and ids are a single line. Line breaks in them, and a NUL in an id,
/// are removed, so that foreign text cannot pass for an event or a field (HTML, section 9.2.5).
///
/// ```
/// use weftwork::Event;
/// let event = Event::new("two\nlines").name("greeting").id("7");
/// assert_eq!(event.to_bytes(), "id: 7\nevent: greeting\ndata: two\ndata: lines\n\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    data: String,
    name: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
}

impl Event {
    /// Creates an event with this data, which a page gets as a `message`.
    pub fn new(data: impl Into<String>) -> Event {
        Event { data: data.into(), name: None, id: None, retry: None }
    }

    /// Creates an event whose data is `value` as JSON.
    ///
    /// # Errors
    /// Fails if the value cannot be JSON, for example a map whose keys are not text.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Event, serde_json::Error> {
        serde_json::to_string(value).map(Event::new)
    }

    /// Sets the name. A page gets the event with `addEventListener(name, ...)`.
    #[must_use]
    pub fn name(self, name: impl AsRef<str>) -> Event {
        Event { name: Some(one_line(name.as_ref())), ..self }
    }

    /// Sets the id, which the client sends when it reconnects. Spaces and tabs at its ends, and control
    /// characters, would not be sent back (RFC 9110 section 5.5). They are removed.
    #[must_use]
    pub fn id(self, id: impl AsRef<str>) -> Event {
        let mut id = one_line(id.as_ref());
        id.retain(|char| char == '\t' || !char.is_ascii_control());
        Event { id: Some(id.trim_matches([' ', '\t']).to_owned()), ..self }
    }

    /// Sets how long the client waits before it reconnects. Default of browsers: about 3 s.
    #[must_use]
    pub fn retry(self, after: Duration) -> Event {
        Event { retry: Some(after), ..self }
    }

    pub(super) fn event_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the event as it is sent.
    pub fn to_bytes(&self) -> Bytes {
        let mut text = String::with_capacity(self.data.len() + 32);
        if let Some(retry) = self.retry {
            push_field(&mut text, "retry", &retry.as_millis().to_string());
        }
        if let Some(id) = &self.id {
            push_field(&mut text, "id", id);
        }
        if let Some(name) = &self.name {
            push_field(&mut text, "event", name);
        }
        lines(&self.data).for_each(|line| push_field(&mut text, "data", line));
        text.push('\n');
        text.into()
    }
}

fn push_field(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str(": ");
    text.push_str(value);
    text.push('\n');
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], "")
}

/// Splits text into lines as an `EventSource` does: CR LF, LF and CR each end a line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let Some(end) = whole.find(['\r', '\n']) else { return rest.take() };
        let after = &whole[end..];
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..));
        Some(&whole[..end])
    })
}
