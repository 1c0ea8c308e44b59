//! One event, as text: whatever it is made of, it stays one event.

use std::time::Duration;

use bytes::Bytes;

/// An event for a page's `EventSource`: data, and perhaps a name, an id, and how long to wait before coming again.
///
/// Data may have any lines. Names and ids are one line: a line break in them, and a NUL in an id, is left out, so that
/// no text from elsewhere can pass for an event or a field (HTML, section 9.2.5).
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
    /// An event with this data, which a page gets as a `message`.
    pub fn new(data: impl Into<String>) -> Event {
        Event { data: data.into(), name: None, id: None, retry: None }
    }

    /// An event whose data is `value` as JSON.
    ///
    /// # Errors
    /// The value cannot be JSON (a map whose keys are not text, say).
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Event, serde_json::Error> {
        serde_json::to_string(value).map(Event::new)
    }

    /// The same under a name: a page gets it by `addEventListener(name, ...)`.
    #[must_use]
    pub fn name(self, name: impl AsRef<str>) -> Event {
        Event { name: Some(one_line(name.as_ref())), ..self }
    }

    /// The same with an id, which the client says when it comes again. Spaces and tabs at its ends, and control characters, would
    /// not come back (RFC 9110 section 5.5), and are left out.
    #[must_use]
    pub fn id(self, id: impl AsRef<str>) -> Event {
        let mut id = one_line(id.as_ref());
        id.retain(|char| char == '\t' || !char.is_ascii_control());
        Event { id: Some(id.trim_matches([' ', '\t']).to_owned()), ..self }
    }

    /// The same, and from now on the client waits this long before it comes again (browsers: some 3 s).
    #[must_use]
    pub fn retry(self, after: Duration) -> Event {
        Event { retry: Some(after), ..self }
    }

    pub(super) fn event_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The event as it is sent.
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

/// The lines as an `EventSource` would see them: CR LF, LF and CR each end one.
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
