//! The requests of a client, and the responses that it must get.

use std::io::{BufRead, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dice::Dice;
use super::kernel::Kernel;
use crate::message::{IntoResponse, Request, Response, ResponseSender};
use crate::testing::TestResponse;

/// Requests behind one another, and their answers.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) bytes: Vec<u8>,
    pub(super) wants: Vec<Want>,
}

/// The answer to a request.
pub(super) struct Want {
    status: u16,
    /// None: the text of a refusal, whatever it is.
    body: Option<Vec<u8>>,
    pub(super) is_head: bool,
    pub(super) ends: Ends,
    /// The handler is never called for it.
    pub(super) is_refused: bool,
    /// Others bring it: who ends his side before that counts as gone.
    pub(super) is_brought: bool,
}

/// What handlers have promised: others bring it.
pub(super) type Promised = Mutex<Vec<(ResponseSender, Response)>>;

/// Does the connection end behind an answer?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Yes,
    No,
    /// That depends on how much of the body had come.
    Maybe,
}

impl Want {
    fn new(body: impl Into<Vec<u8>>) -> Want {
        Want {
            status: 200,
            body: Some(body.into()),
            is_head: false,
            ends: Ends::No,
            is_refused: false,
            is_brought: false,
        }
    }

    pub(super) fn is(&self, got: &TestResponse) -> bool {
        got.status == self.status && self.body.as_ref().is_none_or(|body| got.bytes() == body)
    }

    pub(super) fn is_begun_by(&self, got: &TestResponse) -> bool {
        got.status == self.status && self.body.as_ref().is_none_or(|body| body.starts_with(got.bytes()))
    }
}

impl std::fmt::Debug for Want {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self.body.as_ref().map(Vec::len);
        write!(f, "{} with {body:?} bytes, ends: {:?}, to HEAD: {}", self.status, self.ends, self.is_head)
    }
}

const FLOOD_BYTES: usize = 5_000_000;

/// Routes whose response is brought, and how long its body is.
const BROUGHT: &[(&str, usize)] =
    &[("brought", 100), ("brought-page", 10_000), ("brought-large", 60_000), ("brought-stream", 100_000)];

type Kind = fn(&mut Script, &mut Dice);

const GOING_ON: &[Kind] = &[
    plain,
    plain,
    head,
    echo,
    echo,
    chunked,
    chunked,
    ignored,
    half,
    stream,
    page,
    page,
    large,
    file,
    expecting,
    echo_stream,
    late,
    brought,
    brought,
];
const ENDING: &[Kind] = &[panicking, closing, http10, malformed, malformed, bad_chunk];

impl Script {
    pub(super) fn random(dice: &mut Dice) -> Script {
        let mut script = Script::default();
        for _ in 0..dice.below(8) {
            dice.one_of(GOING_ON)(&mut script, dice);
        }
        if script.wants.is_empty() || dice.once_in(2) {
            dice.one_of(ENDING)(&mut script, dice);
            script.smuggle();
        }
        script
    }

    pub(super) fn of_all_kinds() -> Script {
        let (mut script, mut dice) = (Script::default(), Dice::new(0));
        for kind in
            [plain, head, expecting, late, brought, echo, chunked, echo_stream, ignored, half, closing]
                as [Kind; 11]
        {
            kind(&mut script, &mut dice);
        }
        script.smuggle();
        script
    }

    /// More than anybody should keep in memory.
    pub(super) fn flood() -> Script {
        let mut script = Script::default();
        script.ask("GET /flood/0", "", b"", Want::new(repeated(0, FLOOD_BYTES)));
        script
    }

    pub(super) fn many(count: usize) -> Script {
        Script::all(count, plain)
    }

    pub(super) fn pages(count: usize) -> Script {
        Script::all(count, page)
    }

    pub(super) fn larges(count: usize) -> Script {
        Script::all(count, large)
    }

    fn all(count: usize, kind: Kind) -> Script {
        let (mut script, mut dice) = (Script::default(), Dice::new(0));
        (0..count).for_each(|_| kind(&mut script, &mut dice));
        script
    }

    /// What is behind the end must not be called; it would be counted as one more.
    fn smuggle(&mut self) {
        self.bytes.extend_from_slice(b"GET /plain/9999 HTTP/1.1\r\nHost: a\r\n\r\n");
    }

    fn ask(&mut self, line: &str, fields: &str, body: &[u8], want: Want) {
        let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(body);
        self.wants.push(want);
    }

    fn number(&self) -> usize {
        self.wants.len()
    }
}

fn plain(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("GET /plain/{number}"), "", b"", Want::new(format!("plain {number}")));
}

fn head(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("HEAD /plain/{number}"), "", b"", Want { is_head: true, ..Want::new("") });
}

fn with_body(script: &mut Script, route: &str, fields: &str, body: &[u8], want: Want) {
    let line = format!("POST /{route}/{}", script.number());
    let fields = format!("Content-Length: {}\r\n{fields}", body.len());
    script.ask(&line, &fields, body, want);
}

fn echo(script: &mut Script, dice: &mut Dice) {
    let size = dice.size(80_000);
    let body = dice.bytes(size);
    with_body(script, "echo", "", &body, Want::new(body.clone()));
}

fn echo_stream(script: &mut Script, dice: &mut Dice) {
    let size = dice.size(80_000);
    let body = dice.bytes(size);
    with_body(script, "echo-stream", "", &body, Want::new(body.clone()));
}

fn expecting(script: &mut Script, dice: &mut Dice) {
    let size = dice.size(5_000);
    let body = dice.bytes(size);
    with_body(script, "echo", "Expect: 100-continue\r\n", &body, Want::new(body.clone()));
}

fn ignored(script: &mut Script, dice: &mut Dice) {
    let size = dice.size(80_000);
    let body = dice.bytes(size);
    let want = Want { ends: Ends::Maybe, ..Want::new(format!("ignored {}", script.number())) };
    with_body(script, "ignored", "", &body, want);
}

fn half(script: &mut Script, dice: &mut Dice) {
    let size = 2 + dice.size(20_000);
    let body = dice.bytes(size);
    let want = Want { ends: Ends::Maybe, ..Want::new(&body[..2]) };
    with_body(script, "half", "", &body, want);
}

fn chunked(script: &mut Script, dice: &mut Dice) {
    let (mut body, mut framed) = (Vec::new(), Vec::new());
    for _ in 0..dice.below(6) {
        let size = 1 + dice.size(20_000);
        let chunk = dice.bytes(size);
        let extension = if dice.once_in(4) { ";a=\"b\"" } else { "" };
        framed.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(&chunk);
        framed.extend_from_slice(b"\r\n");
        body.extend_from_slice(&chunk);
    }
    framed.extend_from_slice(if dice.once_in(3) { b"0\r\nA: b\r\n\r\n" } else { b"0\r\n\r\n" });
    let route = *dice.one_of(&["echo", "echo-stream"]);
    let line = format!("POST /{route}/{}", script.number());
    script.ask(&line, "Transfer-Encoding: chunked\r\n", &framed, Want::new(body));
}

fn stream(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("GET /stream/{number}"), "", b"", Want::new(repeated(number, 100_000)));
}

fn page(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("GET /page/{number}"), "", b"", Want::new(repeated(number, 10_000)));
}

fn large(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("GET /large/{number}"), "", b"", Want::new(repeated(number, 60_000)));
}

fn file(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("GET /file/{number}"), "", b"", Want::new(include_bytes!("talk.rs").as_slice()));
}

fn late(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.ask(&format!("GET /late/{number}"), "", b"", Want::new(format!("late {number}")));
}

fn brought(script: &mut Script, dice: &mut Dice) {
    let (number, is_head) = (script.number(), dice.once_in(4));
    let (route, count) = *dice.one_of(BROUGHT);
    let body = if is_head { Vec::new() } else { repeated(number, count) };
    let method = if is_head { "HEAD" } else { "GET" };
    let want = Want { is_head, is_brought: true, ..Want::new(body) };
    script.ask(&format!("{method} /{route}/{number}"), "", b"", want);
}

fn panicking(script: &mut Script, _: &mut Dice) {
    let want = Want { status: 500, ends: Ends::Yes, body: None, ..Want::new("") };
    script.ask(&format!("GET /panic/{}", script.number()), "", b"", want);
}

fn closing(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    let want = Want { ends: Ends::Yes, ..Want::new(format!("plain {number}")) };
    script.ask(&format!("GET /plain/{number}"), "Connection: close\r\n", b"", want);
}

fn http10(script: &mut Script, _: &mut Dice) {
    let number = script.number();
    script.bytes.extend_from_slice(format!("GET /plain/{number} HTTP/1.0\r\n\r\n").as_bytes());
    script.wants.push(Want { ends: Ends::Yes, ..Want::new(format!("plain {number}")) });
}

fn malformed(script: &mut Script, dice: &mut Dice) {
    const HEADS: &[(u16, &str)] = &[
        (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (400, "HEAD / HTTP/1.1\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
        (400, "GET / HTTP/1.1\nHost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde"),
        (
            400,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (501, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
        (505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    ];
    let (status, head) = *dice.one_of(HEADS);
    script.bytes.extend_from_slice(head.as_bytes());
    let is_head = head.starts_with("HEAD");
    script.wants.push(Want {
        status,
        body: None,
        is_head,
        ends: Ends::Yes,
        is_refused: true,
        ..Want::new("")
    });
}

fn bad_chunk(script: &mut Script, dice: &mut Dice) {
    const BODIES: &[&[u8]] =
        &[b"3\r\nabcX\r\n0\r\n\r\n", b"x\r\n", b"3\nabc\r\n", b"-1\r\n\r\n", b"0\r\n\0: a\r\n\r\n"];
    let want = Want { status: 400, body: None, ends: Ends::Yes, ..Want::new("") };
    let line = format!("POST /echo/{}", script.number());
    script.ask(&line, "Transfer-Encoding: chunked\r\n", dice.one_of::<&[u8]>(BODIES), want);
}

fn repeated(number: usize, count: usize) -> Vec<u8> {
    let mut text = format!("{number} ").repeat(count / 2).into_bytes();
    text.truncate(count);
    text
}

/// The handler: notes the number of the request, and does what its route says.
pub(super) fn answer(
    req: &mut Request<'_>,
    calls: &Mutex<Vec<usize>>,
    promised: &Promised,
    kernel: &Arc<Kernel>,
) -> Response {
    let path = req.path().to_owned();
    let (route, number) = path[1..].split_once('/').unwrap();
    let number: usize = number.parse().unwrap();
    calls.lock().unwrap().push(number);
    kernel.work();
    let answered = match route {
        "plain" => Ok(Response::text(format!("plain {number}"))),
        "echo" => echo_at_leisure(req, kernel),
        "echo-stream" => Ok(echo_back(req, kernel.clone())),
        "ignored" => Ok(Response::text(format!("ignored {number}"))),
        "half" => first_two(req),
        "stream" => Ok(stream_of(number, 100_000, kernel.clone())),
        "flood" => Ok(stream_of(number, FLOOD_BYTES, kernel.clone())),
        "page" => Ok(Response::bytes(repeated(number, 10_000))),
        "large" => Ok(Response::bytes(repeated(number, 60_000))),
        "file" => std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/src/conn/tests/faults/talk.rs"))
            .map_err(crate::Error::from)
            .and_then(Response::file),
        "brought" => Ok(promise(promised, || Response::bytes(repeated(number, 100)))),
        "brought-page" => Ok(promise(promised, || Response::bytes(repeated(number, 10_000)))),
        "brought-large" => Ok(promise(promised, || Response::bytes(repeated(number, 60_000)))),
        "brought-stream" => Ok(promise(promised, || stream_of(number, 100_000, kernel.clone()))),
        "late" => Ok(Response::text(format!("late {number}"))),
        // Without the hook, which would print thousands of them.
        _ => std::panic::resume_unwind(Box::new("as asked")),
    };
    answered.into_response()
}

/// Nobody has to bring it: what is sent otherwise is the same.
fn promise(promised: &Promised, response: impl Fn() -> Response) -> Response {
    let (sender, later) = Response::later(Duration::MAX, response());
    promised.lock().unwrap().push((sender, response()));
    later
}

fn stream_of(number: usize, count: usize, kernel: Arc<Kernel>) -> Response {
    Response::stream(move |out| {
        repeated(number, count).chunks(7_000).try_for_each(|part| {
            kernel.work();
            out.write_all(part)
        })
    })
}

fn echo_at_leisure(req: &mut Request<'_>, kernel: &Kernel) -> crate::Result<Response> {
    let (mut body, mut part) = (Vec::new(), [0; 5_000]);
    loop {
        match req.body().read(&mut part)? {
            0 => return Ok(Response::bytes(body)),
            count => body.extend_from_slice(&part[..count]),
        }
        kernel.work();
    }
}

/// A body that cannot be read at all still gets its status.
fn echo_back(req: &mut Request<'_>, kernel: Arc<Kernel>) -> Response {
    if let Err(error) = req.body().fill_buf() {
        return crate::Error::from(error).into_response();
    }
    Response::stream(move |out| {
        let mut part = [0; 3_000];
        loop {
            kernel.work();
            match out.read_request(&mut part)? {
                0 => return Ok(()),
                count => out.write_all(&part[..count])?,
            }
        }
    })
}

fn first_two(req: &mut Request<'_>) -> crate::Result<Response> {
    let mut two = [0; 2];
    req.body().read_exact(&mut two)?;
    Ok(Response::bytes(two.to_vec()))
}
