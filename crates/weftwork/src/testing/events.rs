//! A test client for event streams, which reads events one at a time, as a page does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use weftwork_wire::{BodyEvent, ResponseReader};

use super::connection::{TestConnection, TestServer};
use super::lockstep::Driver;
use super::pipe::Pipe;
use super::response::{NO_LIMITS, take_response};
use crate::app::Event;

/// An event as a page gets it. To compare it with an event of a handler, use `Event::new("tea").into()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestEvent {
    /// Name of the event. Without a name, a page gets it as a `message`.
    pub name: Option<String>,
    /// Data of the event, with lines separated by `\n`.
    pub data: String,
    /// Id that the event sets.
    pub id: Option<String>,
    /// Reconnection time that the event sets.
    pub retry: Option<Duration>,
}

impl TestEvent {
    /// Parses the data as JSON.
    ///
    /// # Panics
    /// Panics if the data is not the expected JSON. The message shows the event.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        match serde_json::from_str(&self.data) {
            Ok(value) => value,
            Err(error) => panic!("the data is not the expected JSON ({error}): {self:?}"),
        }
    }
}

impl From<Event> for TestEvent {
    fn from(event: Event) -> TestEvent {
        let mut parser = EventParser::default();
        parser.text.extend_from_slice(&event.to_bytes());
        // Cannot be `None`: an event has data, at least an empty line.
        parser.next_event().unwrap_or_default()
    }
}

/// The client side of an event stream of a [`TestClient`](super::TestClient).
/// [`TestRequest::events`](super::TestRequest::events) creates it.
///
/// A handler that writes events itself ([`sse`](crate::sse())) runs on its own thread here. It runs only during
/// a call of the test, until it waits for a later time:
///
/// ```
/// use std::time::Duration;
/// use weftwork::{Event, Request, Response, TestClient, sse};
///
/// fn clock(req: &mut Request) -> Response {
///     sse(req, |events| {
///         for second in 0.. {
///             events.send(&Event::new(second.to_string()))?;
///             if !events.wait(Duration::from_secs(1))? {
///                 break;
///             }
///         }
///         Ok(())
///     })
/// }
///
/// let mut page = TestClient::new(clock).events("/");
/// assert_eq!(page.read().unwrap().data, "0");
/// assert_eq!(page.read(), None);
/// page.advance(Duration::from_secs(2));
/// assert_eq!(page.read().unwrap().data, "1");
/// assert_eq!(page.read().unwrap().data, "2");
/// ```
///
/// Comments, such as heartbeats, are invisible to a page. Dropping this client disconnects it, which ends the
/// handler.
pub struct TestEvents {
    // Dropped first.
    driver: Driver,
    server: Arc<TestServer>,
    pipe: Arc<Pipe>,
    reader: ResponseReader,
    headers: HeaderMap,
    parser: EventParser,
    is_over: bool,
}

impl TestEvents {
    #[track_caller]
    pub(super) fn over(connection: TestConnection, server: &Arc<TestServer>, method: &Method) -> TestEvents {
        let (server, pipe) = (server.clone(), connection.pipe.clone());
        let mut driver = Driver::new(connection);
        driver.run(server.now());
        let (ended, mut reader) = (pipe.server_has_ended(), ResponseReader::new());
        match pipe.received(|bytes| take_head(&mut reader, bytes, method)) {
            Some(headers) => {
                let (parser, is_over) = (EventParser::default(), false);
                TestEvents { driver, server, pipe, reader, headers, parser, is_over }
            }
            None => match pipe.received(|bytes| take_response(bytes, method, ended)) {
                Ok(answer) => panic!("not an event stream: {answer:?}"),
                Err(none) => panic!("not an event stream: {none}"),
            },
        }
    }

    /// Returns the headers of the response.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the next event, or `None` if there is no event now.
    ///
    /// # Panics
    /// Panics if the server sent an invalid response or invalid UTF-8. Also panics if its handler waits for
    /// something other than its client and the time: see [`TestRequest::events`](super::TestRequest::events).
    #[track_caller]
    pub fn read(&mut self) -> Option<TestEvent> {
        self.run(Duration::ZERO);
        self.parser.next_event()
    }

    /// Returns the reconnection time that the server set, as far as the stream was [read](TestEvents::read). An
    /// [`EventHub`](crate::EventHub) sets it when the server stops.
    pub fn retry(&self) -> Option<Duration> {
        self.parser.retry
    }

    /// Returns whether the server has ended the stream. Earlier events may still be unread.
    ///
    /// # Panics
    /// Same as [`read`](TestEvents::read).
    #[track_caller]
    pub fn is_over(&mut self) -> bool {
        self.run(Duration::ZERO);
        self.is_over
    }

    /// Advances the clock of the handler and the connection. What is due happens.
    ///
    /// # Panics
    /// Same as [`read`](TestEvents::read).
    #[track_caller]
    pub fn advance(&mut self, time: Duration) {
        self.run(time);
    }

    #[track_caller]
    fn run(&mut self, time: Duration) {
        self.driver.run(self.server.now().after(time));
        let ended = self.pipe.server_has_ended();
        let (reader, text) = (&mut self.reader, &mut self.parser.text);
        let is_over = self.pipe.received(|bytes| {
            let mut at = 0;
            let is_over = loop {
                let (used, event) = match reader.read_body(&bytes[at..], &NO_LIMITS) {
                    Ok(read) => read,
                    Err(fault) => panic!("the server sent an invalid response: {fault}"),
                };
                if let BodyEvent::Data { start, len } = event {
                    text.extend_from_slice(&bytes[at + start..][..len]);
                }
                at += used;
                match event {
                    BodyEvent::Data { .. } => {}
                    BodyEvent::End => break true,
                    BodyEvent::NeedMore => break ended,
                }
            };
            bytes.drain(..at);
            is_over
        });
        self.is_over |= is_over;
    }
}

impl fmt::Debug for TestEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEvents").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// Takes the head of the response, if it is an event stream.
fn take_head(reader: &mut ResponseReader, bytes: &mut Vec<u8>, method: &Method) -> Option<HeaderMap> {
    let mut used = 0;
    let head = loop {
        let (count, head) = reader.read_head(&bytes[used..], method, &NO_LIMITS).ok()??;
        used += count;
        if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
            break head;
        }
    };
    let headers = HeaderMap::from_iter(head.fields);
    let kind = headers.get(CONTENT_TYPE)?.as_bytes();
    let is_stream = head.status == StatusCode::OK && kind.starts_with(b"text/event-stream");
    is_stream.then(|| {
        bytes.drain(..used);
        headers
    })
}

/// Parses the lines of a stream (HTML, section 9.2.6).
#[derive(Default)]
struct EventParser {
    /// Bytes that were not parsed yet.
    text: Vec<u8>,
    /// The event that has started.
    partial: TestEvent,
    has_data: bool,
    retry: Option<Duration>,
    /// Whether the last line ended with CR, so that a following LF belongs to it.
    after_cr: bool,
    past_bom: bool,
}

impl EventParser {
    #[track_caller]
    fn next_event(&mut self) -> Option<TestEvent> {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.apply_field(&line);
                continue;
            }
            let event = std::mem::take(&mut self.partial);
            if std::mem::take(&mut self.has_data) {
                return Some(event);
            }
        }
        None
    }

    #[track_caller]
    fn next_line(&mut self) -> Option<String> {
        if self.after_cr && self.text.first() == Some(&b'\n') {
            self.text.remove(0);
        }
        let end = self.text.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
        self.after_cr = self.text[end] == b'\r';
        let line: Vec<u8> = self.text.drain(..=end).take(end).collect();
        let line =
            String::from_utf8(line).unwrap_or_else(|error| panic!("the events are not UTF-8: {error}"));
        match std::mem::replace(&mut self.past_bom, true) {
            false => Some(line.trim_start_matches('\u{feff}').to_owned()),
            true => Some(line),
        }
    }

    fn apply_field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.partial.name = Some(value.to_owned()),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.partial.data.push('\n');
                }
                self.partial.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.partial.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.partial.retry = value.parse().ok().map(Duration::from_millis);
                self.retry = self.partial.retry.or(self.retry);
            }
            // A comment has no name. Other fields are ignored.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
