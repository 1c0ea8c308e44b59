//! The client's end of a connection of HTTP/2 in memory.

use std::collections::VecDeque;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use weftwork_wire::{ErrorCode, Frame, Head, Http2, Http2Settings, RequestHead, Window};

use crate::testing::pipe::RECEIVED_BYTES_MAX;
use crate::testing::response::{NO_LIMITS, NoResponse, TestResponse};

/// Maximum bytes of a DATA frame.
const DATA_BYTES_MAX: usize = 16_384;

/// What a request sends.
pub(in crate::testing) struct Outgoing {
    pub(in crate::testing) method: Method,
    pub(in crate::testing) target: String,
    pub(in crate::testing) authority: String,
    pub(in crate::testing) fields: Vec<(HeaderName, HeaderValue)>,
    pub(in crate::testing) steps: VecDeque<BodyStep>,
    /// Bytes of frames after which the client leaves.
    pub(in crate::testing) leave_after: Option<u64>,
}

/// A step of a body, run when the server waits for it.
pub(in crate::testing) enum BodyStep {
    Data(Vec<u8>),
    Pause(Duration),
    /// Continues when `100 Continue` has arrived.
    Continue,
}

/// A request in progress, and what has come for it.
struct Exchange {
    stream: u32,
    steps: VecDeque<BodyStep>,
    send_window: Window,
    has_sent_all: bool,
    response: TestResponse,
    has_head: bool,
    body: Vec<u8>,
    is_whole: bool,
    reset: Option<ErrorCode>,
    received: u64,
    leave_after: Option<u64>,
}

/// Result of the client's next step.
pub(super) enum NextStep {
    Sent,
    Pause(Duration),
    Idle,
}

pub(super) struct Client {
    http: Http2,
    head: Head,
    text: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
    send_window: Window,
    /// Bytes that were read, and that the server may not send again.
    taken: u32,
    /// The request whose response the test waits for.
    exchange: Option<Exchange>,
    /// Requests whose responses the test wants later.
    pending: Vec<Exchange>,
    /// Stream of the request that pauses.
    paused: u32,
    /// The server takes no more requests.
    is_over: bool,
    /// No step of the body is made now.
    pub(super) is_pausing: bool,
}

impl Client {
    pub(super) fn new() -> Client {
        // The test reads everything, so the server need not wait for it.
        let http = Http2::client(&Http2Settings { window: Window::MAX, ..Http2Settings::default() });
        let mut output = Vec::new();
        http.write_preface(&mut output);
        Http2::write_window_update(0, Window::MAX - Window::DEFAULT, &mut output);
        Client {
            http,
            head: Head::default(),
            text: Vec::new(),
            input: Vec::new(),
            output,
            send_window: Window::default(),
            taken: 0,
            exchange: None,
            pending: Vec::new(),
            paused: 0,
            is_over: false,
            is_pausing: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether there is nothing left to wait for.
    pub(super) fn has_response(&self) -> bool {
        self.is_over
            || self.exchange.as_ref().is_none_or(|exchange| exchange.is_whole || exchange.reset.is_some())
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, request: Outgoing, is_secured: bool) {
        let Outgoing { method, target, authority, fields, steps, leave_after } = request;
        let head = RequestHead {
            method: &method,
            scheme: Some(if is_secured { "https" } else { "http" }),
            path: Some(&target),
            authority: Some(&authority),
            protocol: None,
            fields: &fields,
        };
        let ends = steps.is_empty();
        let Some(stream) = self.http.write_request(&head, ends, &mut self.output) else {
            self.is_over = true;
            return;
        };
        self.exchange = Some(Exchange {
            stream,
            steps,
            send_window: Window::new(self.http.peer().window),
            has_sent_all: ends,
            response: TestResponse::empty(),
            has_head: false,
            body: Vec::new(),
            is_whole: false,
            reset: None,
            received: 0,
            leave_after,
        });
    }

    /// Sets the request aside that was just begun. Returns its stream, unless there was none left.
    pub(super) fn set_aside(&mut self) -> Option<u32> {
        let exchange = self.exchange.take()?;
        let stream = exchange.stream;
        self.pending.push(exchange);
        Some(stream)
    }

    /// Takes up a request that was set aside.
    pub(super) fn take_up(&mut self, stream: u32) {
        let at = self.pending.iter().position(|exchange| exchange.stream == stream);
        self.exchange = at.map(|at| self.pending.remove(at));
    }

    fn exchange_of(&mut self, stream: u32) -> Option<&mut Exchange> {
        self.exchange.iter_mut().chain(&mut self.pending).find(|exchange| exchange.stream == stream)
    }

    /// Takes the bytes to send.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns whether the client disconnects: it has what it wanted, or its test takes nothing of a response without end.
    pub(super) fn leaves(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| {
            exchange.leave_after.is_some_and(|bytes| exchange.received >= bytes)
                || exchange.body.len() >= RECEIVED_BYTES_MAX
        })
    }

    /// Runs the next step of a body.
    pub(super) fn run_step(&mut self) -> NextStep {
        if self.is_pausing {
            return NextStep::Idle;
        }
        for exchange in self.exchange.iter_mut().chain(&mut self.pending) {
            match exchange.run_step(&mut self.send_window, &mut self.output) {
                NextStep::Idle => {}
                step => {
                    self.paused = exchange.stream;
                    return step;
                }
            }
        }
        NextStep::Idle
    }

    /// Puts back the rest of a pause.
    pub(super) fn resume_pause(&mut self, time: Duration) {
        if let Some(exchange) = self.exchange_of(self.paused) {
            exchange.steps.push_front(BodyStep::Pause(time));
        }
    }

    /// Takes bytes of the server.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if let Some(exchange) = &mut self.exchange {
            exchange.received += bytes.len() as u64;
        }
        let input = std::mem::take(&mut self.input);
        let mut start = 0;
        while let Ok((used, frame)) =
            self.http.read(&input[start..], &NO_LIMITS, &mut self.head, &mut self.text)
        {
            let bytes = &input[start..];
            start += used;
            if frame == Frame::NeedMore {
                break;
            }
            self.take(frame, bytes);
        }
        self.input = input[start..].to_vec();
    }

    fn take(&mut self, frame: Frame, bytes: &[u8]) {
        let fields = |client: &Client| {
            let fields = client.head.fields.iter();
            let parsed = fields.filter_map(|field| {
                let name = HeaderName::from_bytes(field.name.of(&client.text)).ok()?;
                Some((name, HeaderValue::from_bytes(field.value.of(&client.text)).ok()?))
            });
            HeaderMap::from_iter(parsed)
        };
        match frame {
            Frame::Response { stream, status, ends, .. } => {
                let headers = fields(self);
                let Some(exchange) = self.exchange_of(stream) else { return };
                if status.is_informational() {
                    return exchange.response.interims.push((status, headers));
                }
                (exchange.response.status, exchange.response.headers) = (status, headers);
                (exchange.has_head, exchange.is_whole) = (true, ends);
            }
            Frame::Trailers { stream } => {
                let trailers = fields(self);
                let Some(exchange) = self.exchange_of(stream) else { return };
                (exchange.response.trailers, exchange.is_whole) = (trailers, true);
            }
            Frame::Data { stream, start, len, flow, ends, .. } => {
                self.taken += flow;
                // Rarely: each grant costs points. The window of a stream is larger than any response.
                if self.taken > Window::MAX / 2 {
                    Http2::write_window_update(0, std::mem::take(&mut self.taken), &mut self.output);
                }
                let Some(exchange) = self.exchange_of(stream) else { return };
                exchange.body.extend_from_slice(&bytes[start..start + len]);
                exchange.is_whole = ends;
            }
            // A window that grows too large would be a fault of the server, which has a test of its own.
            Frame::Window { stream: 0, by } => {
                let _ = self.send_window.add(by, 0);
            }
            Frame::Window { stream, by } => {
                if let Some(exchange) = self.exchange_of(stream) {
                    let _ = exchange.send_window.add(by, stream);
                }
            }
            Frame::Settings { window_shift } => {
                for exchange in self.exchange.iter_mut().chain(&mut self.pending) {
                    let _ = exchange.send_window.shift(window_shift);
                }
                Http2::write_settings_ack(&mut self.output);
            }
            Frame::Reset { stream, code } => {
                if let Some(exchange) = self.exchange_of(stream) {
                    exchange.reset = Some(code);
                }
            }
            Frame::Ping(data) => Http2::write_ping_ack(data, &mut self.output),
            Frame::GoAway { .. } => self.is_over = true,
            _ => {}
        }
    }

    /// Ends the request, and returns its response.
    pub(super) fn finish(&mut self, has_ended: bool) -> Result<TestResponse, NoResponse> {
        let Some(exchange) = self.exchange.take() else {
            return Err(NoResponse::new("the connection has no streams left", b""));
        };
        let within = if exchange.has_head { "the body" } else { "the head" };
        let response = exchange.response.with_body(exchange.body, exchange.is_whole);
        if exchange.is_whole {
            return Ok(response);
        }
        let why = match exchange.reset {
            Some(code) => format!("the server reset the stream ({code:?})"),
            None if exchange.leave_after.is_none() && self.input.len() >= RECEIVED_BYTES_MAX => {
                "the test client disconnected because it holds 64 MiB of a response".to_owned()
            }
            None if has_ended => "the server ended the connection".to_owned(),
            None => "the server waits for more from the client, or for its clock".to_owned(),
        };
        if exchange.reset.is_none() {
            // The next request must not meet this one.
            Http2::write_reset(exchange.stream, ErrorCode::CANCEL, &mut self.output);
        }
        let received = response.bytes().clone();
        let partial = exchange.has_head.then_some(response);
        Err(NoResponse::new(format!("{why} before the end of {within}"), &received).with_partial(partial))
    }
}

impl Exchange {
    /// Runs the next step of the body.
    fn run_step(&mut self, send_window: &mut Window, output: &mut Vec<u8>) -> NextStep {
        if self.has_sent_all || self.reset.is_some() {
            return NextStep::Idle;
        }
        let said_continue =
            || self.response.interims.iter().any(|(status, _)| *status == StatusCode::CONTINUE);
        match self.steps.front_mut() {
            None => {
                self.has_sent_all = true;
                Http2::write_data(self.stream, b"", true, output);
                return NextStep::Sent;
            }
            Some(BodyStep::Continue) if !said_continue() => return NextStep::Idle,
            Some(BodyStep::Continue) => {}
            // A client that reads while it sends sees that the response has ended.
            Some(BodyStep::Pause(_)) if self.is_whole => return NextStep::Idle,
            Some(BodyStep::Pause(time)) => {
                let time = *time;
                self.steps.pop_front();
                return NextStep::Pause(time);
            }
            Some(BodyStep::Data(data)) => {
                let room = send_window.available().min(self.send_window.available());
                let count = data.len().min(room as usize).min(DATA_BYTES_MAX);
                if count == 0 && !data.is_empty() {
                    return NextStep::Idle;
                }
                // They were just compared.
                let _ = send_window.take(count as u32, 0);
                let _ = self.send_window.take(count as u32, self.stream);
                let part: Vec<u8> = data.drain(..count).collect();
                if !data.is_empty() {
                    Http2::write_data(self.stream, &part, false, output);
                    return NextStep::Sent;
                }
                self.steps.pop_front();
                self.has_sent_all = self.steps.is_empty();
                Http2::write_data(self.stream, &part, self.has_sent_all, output);
                return NextStep::Sent;
            }
        }
        self.steps.pop_front();
        self.run_step(send_window, output)
    }
}
