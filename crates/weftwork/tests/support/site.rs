//! A server with a handler of every kind, and its state as the test sees it from inside.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use weftwork::http::{HeaderName, HeaderValue, StatusCode, header};
use weftwork::{Request, Response, Result, Running, Server, Upgraded};

use super::client::Client;
use super::eventually;
use super::gate::Gate;

pub(crate) struct Site {
    pub(crate) running: Running,
    pub(crate) inside: Arc<SiteState>,
}

/// State that handlers share with the test.
#[derive(Default)]
pub(crate) struct SiteState {
    calls: AtomicUsize,
    pub(crate) gate: Gate,
    threads: Mutex<HashMap<ThreadId, usize>>,
    /// Handlers that have looked at their clients, and how many of these clients were seen to leave.
    pub(crate) watching: AtomicUsize,
    pub(crate) left: AtomicUsize,
    /// Failed writes of writers that tried to write more than they had declared.
    pub(crate) refused: AtomicUsize,
}

impl Site {
    pub(crate) fn start(server: Server) -> Site {
        let inside = Arc::<SiteState>::default();
        let shared = inside.clone();
        let running = server.start(move |req: &mut Request| shared.answer(req)).expect("the server starts");
        Site { running, inside }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.running)
    }

    /// Returns a setting as answers and log lines name it: `head_timeout is 10s`.
    pub(crate) fn setting(&self, name: &str) -> String {
        let all = self.running.settings().list();
        let setting = all.iter().find(|setting| setting.name == name).expect("a setting");
        format!("{name} is {}", setting.value)
    }

    /// Sends `request`, which ends in its empty line. Checks the answer's Connection field, and whether the
    /// connection continues.
    #[track_caller]
    pub(crate) fn check_connection(&self, request: &str, connection: Option<&str>, goes_on: bool) {
        let mut client = self.client();
        client.send(request);
        let answer = client.answer();
        assert_eq!(answer.field("connection"), connection, "{request:?}: {answer:?}");
        match goes_on {
            true => client.get("/").is(200, "hello"),
            false => client.ends(),
        }
    }

    /// Returns how often a handler was called.
    pub(crate) fn calls(&self) -> usize {
        self.inside.calls.load(Ordering::SeqCst)
    }

    /// Returns the calls of `/thread`, by the thread that answered.
    pub(crate) fn calls_by_thread(&self) -> Vec<usize> {
        self.inside.threads.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    /// Checks that the server still answers, and that no connection is left behind.
    #[track_caller]
    pub(crate) fn is_well(&self) {
        self.is_well_after(b"");
    }

    /// Checks the same for a server whose connections begin with `first`.
    #[track_caller]
    pub(crate) fn is_well_after(&self, first: &[u8]) {
        let mut client = self.client();
        client.send_in_clear(first);
        client.get("/").is(200, "hello");
        drop(client);
        eventually("every connection ends", || self.running.stats().connections == 0);
    }
}

impl SiteState {
    fn answer(self: &Arc<SiteState>, req: &mut Request) -> Result<Response> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let path = req.path().to_owned();
        // The path of CONNECT is empty.
        let path = path.get(1..).unwrap_or_default();
        let (route, argument) = path.split_once('/').unwrap_or((path, ""));
        let number = argument.parse().unwrap_or(0);
        Ok(match route {
            "" if req.path() == "*" => Response::text("all of it"),
            "" => Response::text("hello"),
            "seen" => seen(req),
            "echo" => Response::bytes(req.body().bytes()?),
            "echo-any" => Response::bytes(req.body().limit(u64::MAX).bytes()?),
            "echo-stream" => echo_stream(req),
            "length" => Response::text(req.body().limit(u64::MAX).bytes()?.len().to_string()),
            "trailers" => trailers(req)?,
            "trailers-out" => trailers_out(argument),
            "trailers-later" => trailers_out(argument).with_delay(Duration::from_millis(10)),
            "ignore" => Response::text("not read"),
            "bytes" => Response::bytes(super::noise(number)),
            "stream" => stream(number),
            "declared" => declared(number, number),
            "too-short" => declared(number + 1, number),
            "too-long" => self.too_long(number),
            "status" => Response::text("text").with_status(StatusCode::from_u16(number as u16)?),
            "close" => Response::text("last").with_close(),
            "upgrade" => Response::upgrade(HeaderValue::from_static("echo"), echo),
            "connection" => Response::text("field").try_with_header(header::CONNECTION, argument)?,
            "date" => Response::text("old").try_with_header(header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT")?,
            "early" => early(req)?,
            "sleep" => self.sleep(number),
            "gate" => self.wait(),
            "gate-bytes" => {
                self.gate.pass();
                Response::bytes(super::noise(number))
            }
            "gate-blocking" => self.wait_in_blocking(),
            "gate-close" => self.wait().with_close(),
            "gate-stream" => self.gate_stream(),
            "pause" => pause(Duration::from_millis(number as u64)),
            "thread" => self.note_thread(),
            "client" => client(req),
            "stopping" => Response::text(req.is_stopping().to_string()),
            "deadline" => deadline(req, number),
            "gone" => self.watch_client(req),
            "panic" => panic!("as asked"),
            "panic-stream" => Response::stream(|out| {
                out.write_all(b"the beginning")?;
                panic!("as asked")
            }),
            "fail-stream" => Response::stream(|out| {
                out.write_all(b"the beginning")?;
                Err(std::io::Error::other("as asked"))
            }),
            _ => Response::new(StatusCode::NOT_FOUND),
        })
    }

    fn sleep(&self, millis: usize) -> Response {
        std::thread::sleep(Duration::from_millis(millis as u64));
        Response::text("slept")
    }

    fn wait(&self) -> Response {
        self.gate.pass();
        Response::text("passed")
    }

    /// Like `/gate`, in a call that frees the thread on every engine.
    fn wait_in_blocking(self: &Arc<SiteState>) -> Response {
        let inside = self.clone();
        weftwork::blocking(move || inside.gate.pass());
        Response::text("passed")
    }

    /// Sends its beginning, then waits.
    fn gate_stream(self: &Arc<SiteState>) -> Response {
        let inside = self.clone();
        Response::stream(move |out| {
            out.write_all(b"before ")?;
            out.flush()?;
            inside.gate.pass();
            out.write_all(b"after")
        })
    }

    /// Declares one byte less than it writes.
    fn too_long(self: &Arc<SiteState>, declared: usize) -> Response {
        let inside = self.clone();
        let answer = Response::stream(move |out| {
            out.write_all(&super::noise(declared))?;
            let written = out.write_all(b"x");
            inside.refused.fetch_add(usize::from(written.is_err()), Ordering::SeqCst);
            written
        });
        answer.with_header(header::CONTENT_LENGTH, HeaderValue::from(declared))
    }

    /// Waits until its client has left, or until the test ends the wait.
    fn watch_client(&self, req: &Request) -> Response {
        let here = req.client_gone();
        self.watching.fetch_add(1, Ordering::SeqCst);
        eventually("the client leaves, or all go", || {
            req.client_gone() || self.left.load(Ordering::SeqCst) > 0
        });
        self.left.fetch_add(usize::from(req.client_gone()), Ordering::SeqCst);
        Response::text(if here { "gone at once" } else { "seen" })
    }

    fn note_thread(&self) -> Response {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        *threads.entry(std::thread::current().id()).or_default() += 1;
        Response::text("noted")
    }
}

/// Sets a deadline `number` milliseconds from now, unless `number` is 0. Returns the remaining milliseconds.
fn deadline(req: &mut Request, number: usize) -> Response {
    if number > 0 {
        req.set_deadline(req.now() + Duration::from_millis(number as u64));
    }
    Response::text(req.time_left().map_or("none".into(), |left| left.as_millis().to_string()))
}

fn client(req: &Request) -> Response {
    let peer = req.peer_addr().map(|peer| peer.ip().to_string());
    let client = req.client_addr().map(|client| client.to_string());
    let shown = |address: Option<String>| address.unwrap_or_else(|| "nobody".into());
    Response::text(format!("{} via {}", shown(client), shown(peer)))
}

/// Reads and writes in turns.
fn echo_stream(req: &mut Request) -> Response {
    let _ = req.body().limit(u64::MAX);
    Response::stream(|out| {
        let mut part = [0; 4096];
        loop {
            let count = out.read_request(&mut part)?;
            if count == 0 {
                return Ok(());
            }
            out.write_all(&part[..count])?;
        }
    })
}

/// Returns the body, its trailers, and the field `X` of the head, which is not a trailer.
fn trailers(req: &mut Request) -> Result<Response> {
    let body = req.body().text()?;
    let trailers = req.trailers().iter().map(|(name, value)| format!("|{name}={}", value.to_str().unwrap()));
    let head = req.header_values("x").map(|value| format!("|head: x={}", value.escape_ascii()));
    Ok(Response::text(body + &trailers.chain(head).collect::<String>()))
}

/// Returns the handler's view of a head: method, host, path and query, and the values of all fields `X`.
fn seen(req: &Request) -> Response {
    let x = req.header_lines().filter(|(name, _)| name.eq_ignore_ascii_case("x"));
    let x: Vec<_> = x.map(|(_, value)| value.escape_ascii().to_string()).collect();
    let (host, query) = (req.host().unwrap_or("none"), req.query().unwrap_or("none"));
    Response::text(format!("{} {host} {} {query} {}", req.method(), req.path(), x.join("|")))
}

/// Writes into its body whether its trailers will be sent.
fn trailers_out(kind: &str) -> Response {
    let name = if kind == "forbidden" { "content-length" } else { "x-sum" };
    let field = (HeaderName::from_static(name), HeaderValue::from(7));
    let first = kind == "first" || kind == "forbidden";
    let answer = Response::stream(move |out| {
        if !first {
            out.write_all(b"body ")?;
        }
        let sent = out.trailers(std::slice::from_ref(&field))?;
        out.write_all(if sent { b"sent" } else { b"kept" })
    });
    if kind == "declared" { answer.with_header(header::CONTENT_LENGTH, HeaderValue::from(9)) } else { answer }
}

/// Another protocol, which echoes what it reads.
fn echo(mut line: Upgraded) -> std::io::Result<()> {
    let mut bytes = [0; 1000];
    loop {
        match line.read(&mut bytes)? {
            0 => return Ok(()),
            count => line.write_all(&bytes[..count])?,
        }
    }
}

fn stream(count: usize) -> Response {
    Response::stream(move |out| out.write_all(&super::noise(count)))
}

fn pause(time: Duration) -> Response {
    Response::stream(move |out| {
        out.write_all(b"before ")?;
        out.pause(time)?;
        out.write_all(b"after")
    })
}

fn declared(length: usize, count: usize) -> Response {
    stream(count).with_header(header::CONTENT_LENGTH, HeaderValue::from(length))
}

fn early(req: &mut Request) -> Result<Response> {
    let link = (HeaderName::from_static("link"), HeaderValue::from_static("</a.css>; rel=preload"));
    req.interim(StatusCode::EARLY_HINTS, &[link])?;
    Ok(Response::text("final"))
}
