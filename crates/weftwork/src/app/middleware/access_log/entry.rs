//! Formats one line of the access log. Text from clients is escaped so that it cannot forge a line.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{Method, Version};

use super::LogFormat;
use crate::app::middleware::{Next, RequestId, TraceContext, User};
use crate::message::Request;
use crate::message::observer::{Arrival, RefusedRequest, ResponseEnd};

/// A request.
pub(super) struct Entry {
    format: LogFormat,
    arrival: Arrival,
    client: Option<IpAddr>,
    /// Absent if the head was not whole.
    line: Option<Line>,
    route: Option<String>,
    host: Box<str>,
    scheme: &'static str,
    referer: Box<[u8]>,
    agent: Box<[u8]>,
    user: Option<User>,
    id: Option<RequestId>,
    trace: Option<TraceContext>,
}

/// The request line.
struct Line {
    method: Method,
    target: Box<str>,
    version: Version,
}

impl Entry {
    pub(super) fn new(format: LogFormat, req: &Request<'_>, next: &Next<'_>) -> Entry {
        let field = |name: &str| -> Box<[u8]> { req.header_values(name).next().unwrap_or_default().into() };
        let is_json = format == LogFormat::Json;
        let wanted = is_json || format == LogFormat::Combined;
        Entry {
            format,
            arrival: req.arrival(),
            client: req.client_addr(),
            line: Some(Line {
                method: req.method().clone(),
                target: req.target().into(),
                version: req.version(),
            }),
            route: if is_json { next.pattern(req) } else { None },
            host: if is_json { req.host().unwrap_or_default().into() } else { Box::default() },
            scheme: if is_json { req.scheme() } else { "" },
            referer: if wanted { field("referer") } else { Box::default() },
            agent: if wanted { field("user-agent") } else { Box::default() },
            user: None,
            id: None,
            trace: None,
        }
    }

    pub(super) fn of_refused(format: LogFormat, request: &RefusedRequest<'_>) -> Entry {
        let line = request.method().zip(request.version()).map(|(method, version)| Line {
            method: method.clone(),
            target: request.target().into(),
            version,
        });
        Entry {
            format,
            arrival: request.arrival,
            client: request.client_addr(),
            line,
            route: request.route.clone(),
            host: String::from_utf8_lossy(request.header("host")).into(),
            scheme: request.scheme(),
            referer: request.header("referer").into(),
            agent: request.header("user-agent").into(),
            user: None,
            id: None,
            trace: None,
        }
    }

    /// Records what inner middleware found out about the client.
    pub(super) fn record_identity(&mut self, req: &Request<'_>) {
        self.user = req.extension().cloned();
        self.id = req.extension().cloned();
        self.trace = req.extension().cloned();
    }

    /// Returns the line with its line break.
    pub(super) fn line(&self, end: &ResponseEnd) -> String {
        let mut line = String::with_capacity(256);
        let took = self.arrival.at.elapsed();
        let at = SystemTime::now().checked_sub(took).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.format {
            LogFormat::Json => self.json(&mut line, end, at, took),
            LogFormat::Short => self.short(&mut line, end, at, took, ["", ""]),
            LogFormat::Terminal => self.short(&mut line, end, at, took, colour(end.shown_status())),
            LogFormat::Common | LogFormat::Combined => self.text(&mut line, end, at, took),
        }
        line.push('\n');
        line
    }

    fn text(&self, line: &mut String, end: &ResponseEnd, at: SystemTime, took: Duration) {
        match self.client {
            Some(client) => write_args(line, format_args!("{client} - ")),
            None => line.push_str("- - "),
        }
        match &self.user {
            // As in Apache: an empty field would look like a missing one.
            Some(user) if user.name().is_empty() => line.push_str("\"\""),
            Some(user) => push_escaped(line, user.name().as_bytes(), b" "),
            None => line.push('-'),
        }
        let date = Date::of(at);
        write_args(
            line,
            format_args!(" [{}/{}/{}:{} +0000] \"", date.day(), date.month(), date.year(), date.time()),
        );
        match &self.line {
            Some(Line { method, target, version }) => {
                push_escaped(line, method.as_str().as_bytes(), b"");
                line.push(' ');
                push_escaped(line, target.as_bytes(), b"");
                write_args(line, format_args!(" {version:?}"));
            }
            None => line.push('-'),
        }
        write_args(line, format_args!("\" {} {}", end.shown_status(), end.body_bytes));
        if self.format == LogFormat::Combined {
            for value in [&self.referer, &self.agent] {
                line.push_str(" \"");
                push_escaped(line, if value.is_empty() { b"-" } else { value }, b"");
                line.push('"');
            }
        }
        write_args(line, format_args!(" {:.6}", took.as_secs_f64()));
    }

    /// Writes the part of known width first. `around` is written around the status.
    fn short(&self, line: &mut String, end: &ResponseEnd, at: SystemTime, took: Duration, around: [&str; 2]) {
        let client = self.client.map_or_else(|| "-".to_owned(), |client| client.to_string());
        let duration = scaled(took.as_micros() as f64, 1000.0, &["us", "ms", "s"]);
        let bytes = scaled(end.body_bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]);
        let (time, status, [before, after]) = (Date::of(at).rfc3339(at, 3), end.shown_status(), around);
        write_args(
            line,
            format_args!("{time} {before}{status}{after} {duration:>7} {bytes:>8} {client:<15} "),
        );
        match &self.line {
            Some(Line { method, target, .. }) => {
                push_escaped(line, method.as_str().as_bytes(), b"");
                line.push(' ');
                push_escaped(line, target.as_bytes(), b"");
            }
            None => line.push('-'),
        }
        if let Some(error) = end.error {
            write_args(line, format_args!(" ({error})"));
        }
    }

    fn json(&self, line: &mut String, end: &ResponseEnd, at: SystemTime, took: Duration) {
        write_args(line, format_args!("{{\"time\":\"{}\"", Date::of(at).rfc3339(at, 6)));
        let (client, trace) = (self.client, &self.trace);
        push_member(line, "client", client.map(|client| client.to_string()).unwrap_or_default().chars());
        push_member(line, "user", self.user.as_ref().map_or("", User::name).chars());
        if let Some(Line { method, target, version }) = &self.line {
            push_member(line, "method", method.as_str().chars());
            push_member(line, "scheme", self.scheme.chars());
            push_member(line, "host", each(self.host.as_bytes()));
            push_member(line, "target", each(target.as_bytes()));
            push_member(line, "route", self.route.as_deref().unwrap_or_default().chars());
            write_args(line, format_args!(",\"version\":\"{version:?}\""));
        }
        push_member(line, "referer", each(&self.referer));
        push_member(line, "agent", each(&self.agent));
        push_member(line, "request_id", self.id.as_ref().map_or("", RequestId::as_str).chars());
        push_member(line, "trace_id", trace.as_ref().map(TraceContext::trace_id).unwrap_or_default().chars());
        let (status, bytes, is_whole) = (end.shown_status(), end.body_bytes, end.is_whole());
        write_args(line, format_args!(",\"status\":{status},\"bytes\":{bytes},\"whole\":{is_whole}"));
        push_member(line, "error", end.error.unwrap_or_default().chars());
        let (queued, took) = (self.arrival.queued.as_secs_f64(), took.as_secs_f64());
        write_args(line, format_args!(",\"queued\":{queued:.3},\"seconds\":{took:.6}}}"));
    }
}

/// Returns the escape sequences before and after a status: green, cyan, yellow and red for 2xx to 5xx (ECMA-48 section 8.3.117).
fn colour(status: u16) -> [&'static str; 2] {
    let before = match status {
        200..300 => "\x1b[32m",
        300..400 => "\x1b[36m",
        400..500 => "\x1b[33m",
        500.. => "\x1b[31m",
        _ => return ["", ""],
    };
    [before, "\x1b[0m"]
}

/// Returns a number of the first unit in the largest unit that it has, with three digits. Each unit is `step` of the one before.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let (mut number, mut unit) = (number, 0);
    while number >= step && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let digits = match number {
        _ if unit == 0 => 0,
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {}", units[unit])
}

fn write_args(line: &mut String, text: std::fmt::Arguments<'_>) {
    // Cannot fail: a `String` accepts every write.
    let _ = line.write_fmt(text);
}

/// Keeps printable ASCII, except characters that end a field. Other bytes become `\xHH`.
fn push_escaped(line: &mut String, bytes: &[u8], also: &[u8]) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => write_args(line, format_args!("\\x{byte:02x}")),
            b' '..=b'~' if !also.contains(&byte) => line.push(char::from(byte)),
            _ => write_args(line, format_args!("\\x{byte:02x}")),
        }
    }
}

/// Writes a text member of a JSON object, unless the text is empty.
fn push_member(line: &mut String, name: &str, value: impl Iterator<Item = char>) {
    let mut value = value.peekable();
    if value.peek().is_some() {
        write_args(line, format_args!(",\"{name}\":\""));
        push_escaped_json(line, value);
        line.push('"');
    }
}

/// Returns the bytes as characters. Bytes beyond ASCII stand for themselves, whatever their encoding was.
fn each(bytes: &[u8]) -> impl Iterator<Item = char> {
    bytes.iter().copied().map(char::from)
}

/// Writes a JSON string. Everything except printable ASCII becomes `\uHHHH`, in UTF-16.
fn push_escaped_json(line: &mut String, text: impl Iterator<Item = char>) {
    for char in text {
        match char {
            '"' | '\\' => write_args(line, format_args!("\\{char}")),
            ' '..='~' => line.push(char),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    write_args(line, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
}

/// The parts of an HTTP date, `Sun, 06 Nov 1994 08:49:37 GMT`, which has a fixed length.
struct Date(String);

impl Date {
    fn of(at: SystemTime) -> Date {
        // HTTP dates cover the years from 1970 to 9999. Other times are set to the nearest one.
        let last = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
        Date(httpdate::fmt_http_date(at.clamp(SystemTime::UNIX_EPOCH, last)))
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.0.get(from..to).unwrap_or_default()
    }

    fn day(&self) -> &str {
        self.part(5, 7)
    }

    fn month(&self) -> &str {
        self.part(8, 11)
    }

    fn month_number(&self) -> usize {
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        MONTHS.find(self.month()).map_or(1, |at| at / 3 + 1)
    }

    fn year(&self) -> &str {
        self.part(12, 16)
    }

    fn time(&self) -> &str {
        self.part(17, 25)
    }

    /// Returns the time with this many digits of the second, at most nine (RFC 3339).
    fn rfc3339(&self, at: SystemTime, digits: usize) -> String {
        let nanos = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        let fraction = format!("{nanos:09}");
        let (year, month, day) = (self.year(), self.month_number(), self.day());
        format!("{year}-{month:02}-{day}T{}.{}Z", self.time(), &fraction[..digits.min(9)])
    }
}

#[cfg(test)]
mod tests {
    //! Tests dates in both forms, and the escaping of every byte.

    use super::*;

    #[test]
    fn dates() {
        let date = Date::of(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!((date.day(), date.month(), date.month_number()), ("06", "Nov", 11));
        assert_eq!((date.year(), date.time()), ("1994", "08:49:37"));
        for (seconds, month) in [(0, 1), (31, 2), (59, 3), (90, 4), (120, 5), (151, 6), (181, 7), (212, 8)] {
            let date = Date::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds * 86_400));
            assert_eq!(date.month_number(), month);
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(784_111_777_042_001);
        assert_eq!(Date::of(at).rfc3339(at, 3), "1994-11-06T08:49:37.042Z");
        assert_eq!(Date::of(at).rfc3339(at, 6), "1994-11-06T08:49:37.042001Z");
        let before = Date::of(SystemTime::UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before.year(), "1970");
    }

    #[test]
    fn numbers_have_a_readable_unit() {
        for (us, text) in
            [(0, "0 us"), (999, "999 us"), (1_250, "1.25 ms"), (45_678, "45.7 ms"), (2_000_000, "2.00 s")]
        {
            assert_eq!(scaled(f64::from(us), 1000.0, &["us", "ms", "s"]), text);
        }
        for (bytes, text) in [(5, "5 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (u32::MAX, "4096 MiB")] {
            assert_eq!(scaled(f64::from(bytes), 1024.0, &["B", "KiB", "MiB"]), text);
        }
    }

    #[test]
    fn every_byte_is_escaped_to_printable_text_reversibly() {
        for byte in 0..=u8::MAX {
            let (mut text, mut json) = (String::new(), String::new());
            push_escaped(&mut text, &[byte], b" ");
            push_escaped_json(&mut json, each(&[byte]));
            assert!(text.bytes().all(|out| (b'!'..=b'~').contains(&out) && out != b'"'), "{byte}");
            assert_eq!(text.len(), if byte.is_ascii_graphic() && !b"\"\\".contains(&byte) { 1 } else { 4 });
            let back: String = serde_json::from_str(&format!("\"{json}\"")).unwrap();
            assert!(json.is_ascii() && back.chars().eq([char::from(byte)]), "{byte}");
        }
    }
}
