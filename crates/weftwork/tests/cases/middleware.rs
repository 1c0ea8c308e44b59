// Tests middleware over sockets with clients that leave, lie or wait.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use weftwork::http::{HeaderValue, header};
use weftwork::middleware::{AccessLog, ConcurrencyLimit, Cors, Csrf, LogFormat, ResponseCache};
use weftwork::{Handler, HandlerExt, Request, Response, Router, Running};

use super::CASE;
use crate::support::{Client, Gate, Guarantee, eventually, is_logged, keep_log, noise};

fn start(handler: impl Handler) -> Running {
    CASE.bind("127.0.0.1:0").start(handler).expect("the server starts")
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Write for Written {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An endless stream, so that only the client's end ends it.
fn endless() -> Response {
    Response::stream(|out| loop {
        out.write_all(&[b'x'; 4096])?;
        out.flush()?;
    })
}

/// Log injection, with the bytes as they arrive from the socket.
#[test]
fn client_input_cannot_forge_lines_of_the_log() {
    let written = Written::default();
    let log = AccessLog::to(LogFormat::Combined, written.clone()).unwrap();
    let running = start((|_: &mut Request| "hello").with(log));
    let mut client = Client::connect(&running);
    client.send(b"GET /'%0a HTTP/1.1\r\nHost: a\r\nUser-Agent: \"\\\x9b31m\xe2\x80\xa8 x\r\nReferer: a\"b\r\n\r\n");
    client.answer();
    eventually("the line is written", || written.lines().len() == 1);
    let line = &written.lines()[0];
    assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
    assert!(line.contains(r#" "\x22\x5c\x9b31m\xe2\x80\xa8 x" "#), "{line}");
}

/// A stream is logged and releases its permit when its client leaves in the middle.
#[test]
fn a_disconnect_ends_the_stream() {
    let written = Written::default();
    let log = AccessLog::to(LogFormat::Json, written.clone()).unwrap();
    let running = start((|_: &mut Request| endless()).with(ConcurrencyLimit::new(1)).with(log));
    for round in 1..=2 {
        let mut client = Client::connect(&running);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.answer_head();
        assert_eq!(head.status, 200, "round {round}: the seat is free");
        client.reset();
        eventually("the stream ends", || written.lines().len() == round);
    }
    assert!(written.lines().iter().all(|line| line.contains("\"status\":499") && line.contains("\"whole\":false")));
}

#[test]
fn a_panic_releases_its_concurrency_permit_and_is_logged() {
    let written = Written::default();
    let log = AccessLog::to(LogFormat::Common, written.clone()).unwrap();
    let panics = |_: &mut Request| -> Response { panic!("as asked") };
    let running = start(panics.with(ConcurrencyLimit::new(1)).with(log));
    for _ in 0..2 {
        assert_eq!(Client::connect(&running).get("/").status, 500);
    }
    eventually("both are logged", || written.lines().len() == 2);
    assert!(written.lines().iter().all(|line| line.contains(" 500 ")));
}

const A_MINUTE: HeaderValue = HeaderValue::from_static("max-age=60");

/// On other connections, and so on other loops and threads. The answers are in one write with requests without
/// a body, and of any size.
#[test]
fn a_cache_answers_in_the_place_of_the_handler() {
    let pages = Arc::new(Mutex::new(vec![noise(100_000)]));
    let once = move |_: &mut Request| {
        let page = pages.lock().unwrap().pop().expect("the handler runs once");
        Response::bytes(page).with_header(header::CACHE_CONTROL, A_MINUTE)
    };
    let running = start(once.with(ResponseCache::new()));
    let first = Client::connect(&running).get("/");
    assert!(first.body == noise(100_000) && first.field("age").is_none());
    let tag = first.field("etag").expect("it is named");
    for _ in 0..8 {
        let mut client = Client::connect(&running);
        client.send(format!(
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let head = client.answer_to_head();
        assert_eq!((head.status, head.field("content-length")), (200, Some("100000")));
        assert_eq!(client.answer().status, 304);
        let again = client.answer();
        assert!(again.status == 200 && again.body == noise(100_000) && again.field("age").is_some());
        assert_eq!((again.field("etag"), again.field("date")), (Some(tag), first.field("date")));
    }
}

/// All clients that request a missing page run the handler. A client that requests a cached page waits for no
/// other.
#[test]
fn a_cache_does_not_block_other_requests() {
    if !CASE.guarantees(Guarantee::QuickBesideBlocked) {
        return;
    }
    let gate = Arc::new(Gate::default());
    let inside = gate.clone();
    let page = move |req: &mut Request| {
        if req.path() == "/slow" {
            inside.pass();
        }
        Response::text("made").with_header(header::CACHE_CONTROL, A_MINUTE)
    };
    let running = start(page.with(ResponseCache::new()));
    Client::connect(&running).get("/quick").is(200, "made");
    let mut slow: Vec<Client> = (0..3).map(|_| Client::connect(&running)).collect();
    for client in &mut slow {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    gate.wait_for(3);
    let quick = Client::connect(&running).get("/quick");
    assert!(quick.field("age").is_some(), "{quick:?}");
    gate.open();
    for client in &mut slow {
        let answer = client.answer();
        assert_eq!((answer.text(), answer.field("age")), ("made", None));
    }
    assert!(Client::connect(&running).get("/slow").field("age").is_some());
}

/// Bytes that a writer flushed have arrived and can be decoded while the writer waits.
#[cfg(feature = "compression")]
#[test]
fn compression_does_not_hold_back_a_stream() {
    use std::io::Read;
    use weftwork::middleware::Compression;

    let gate = Arc::new(Gate::default());
    let inside = gate.clone();
    let slow = move |_: &mut Request| {
        let gate = inside.clone();
        let write = move |out: &mut weftwork::BodyWriter<'_>| {
            out.write_all(b"first")?;
            out.flush()?;
            gate.pass();
            out.write_all(b" second")
        };
        Response::stream(write).with_content_type(HeaderValue::from_static("text/plain"))
    };
    let running = start(slow.with(Compression::new()));
    let mut client = Client::connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(client.answer_head().field("content-encoding"), Some("gzip"));
    let (mut sent, mut first) = (Vec::new(), [0; 5]);
    while flate2::read::GzDecoder::new(&sent[..]).read_exact(&mut first).is_err() {
        sent.extend(client.chunk());
    }
    assert_eq!(&first, b"first");
    gate.open();
    loop {
        match client.chunk() {
            chunk if chunk.is_empty() => break,
            chunk => sent.extend(chunk),
        }
    }
    let mut all = String::new();
    flate2::read::GzDecoder::new(&sent[..]).read_to_string(&mut all).unwrap();
    assert_eq!(all, "first second");
}

/// A decompression bomb costs its request a 413, and costs other requests nothing.
#[cfg(feature = "compression")]
#[test]
fn a_decompression_bomb_is_refused() {
    use weftwork::Result;
    use weftwork::middleware::Decompression;

    keep_log();
    let length = |req: &mut Request| -> Result<String> { Ok(req.body().limit(u64::MAX).bytes()?.len().to_string()) };
    let running = start(length.with(Decompression::new()));
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&vec![0; 8 << 20]).unwrap();
    let bomb = packer.finish().unwrap();
    let mut client = Client::connect(&running);
    let path = format!("/bomb/{}", module_path!());
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.len());
    client.send([head.as_bytes(), &bomb].concat());
    let answer = client.answer();
    assert!(answer.status == 413 && !answer.text().contains("ratio_max"), "{answer:?}");
    is_logged(&["more than ratio_max allows", &path]);
    let mut client = Client::connect(&running);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nplain");
    client.answer().is(200, "5");
}

/// Every coding works in both directions with the stack that the engine provides.
#[cfg(feature = "compression")]
#[test]
fn every_coding_works_on_every_engine() {
    use std::io::Read;
    use weftwork::Result;
    use weftwork::middleware::{Compression, Decompression};

    let echo = |req: &mut Request| -> Result<String> { Ok(req.body().text()?) };
    let running = start(echo.with(Decompression::new()).with(Compression::new()));
    let text = String::from_utf8(crate::support::noise(20_000).iter().map(|byte| b'a' + byte % 16).collect()).unwrap();
    for coding in ["gzip", "br", "zstd"] {
        let mut body = Vec::new();
        match coding {
            "gzip" => {
                let mut packer = flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::fast());
                packer.read_to_end(&mut body).unwrap();
            }
            "br" => {
                brotli::CompressorReader::new(text.as_bytes(), 4096, 5, 22).read_to_end(&mut body).unwrap();
            }
            _ => body = zstd::encode_all(text.as_bytes(), 3).unwrap(),
        }
        let length = body.len();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\nAccept-Encoding: {coding}\r\n");
        let head = format!("{head}Content-Length: {length}\r\n\r\n");
        let mut client = Client::connect(&running);
        client.send_by(999, [head.as_bytes(), &body].concat());
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("content-encoding")), (200, Some(coding)));
        let mut back = String::new();
        match coding {
            "gzip" => flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut back).unwrap(),
            "br" => brotli::Decompressor::new(&answer.body[..], 4096).read_to_string(&mut back).unwrap(),
            _ => zstd::stream::read::Decoder::new(&answer.body[..]).unwrap().read_to_string(&mut back).unwrap(),
        };
        assert_eq!(back, text, "{coding}");
    }
}

/// A client that disconnects within its file leaves no file behind, and the half is not accepted as the whole.
#[cfg(feature = "multipart")]
#[test]
fn a_truncated_upload_is_not_saved() {
    use weftwork::Result;

    let folder = Arc::new(tempfile::tempdir().unwrap());
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let (inside, told) = (folder.clone(), outcomes.clone());
    let (has_begun, begun) = std::sync::mpsc::channel();
    let save = move |req: &mut Request| -> Result<&'static str> {
        let mut form = req.multipart()?;
        let part = form.next_part()?;
        has_begun.send(()).unwrap();
        let saved = part.expect("a part has begun").save_in(inside.path()).map(|upload| upload.bytes());
        told.lock().unwrap().push(saved.is_ok());
        saved.map(|_| "saved")
    };
    let running = start(save);
    let mut client = Client::connect(&running);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 900000\r\n\r\n";
    let part = "--x\r\nContent-Disposition: form-data; name=a; filename=a\r\n\r\n";
    client.send([head.as_bytes(), part.as_bytes(), &[b'x'; 200_000]].concat());
    // Over HTTP/2, the end is a reset. A request that is reset before its handler runs has no handler.
    begun.recv_timeout(crate::support::TIMEOUT).unwrap();
    client.half_close();
    eventually("the handler is told", || !outcomes.lock().unwrap().is_empty());
    assert_eq!(*outcomes.lock().unwrap(), [false]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Browsers tell a page little about a refusal, so the log has to.
#[test]
fn refused_pages_are_in_the_log_with_what_to_set() {
    keep_log();
    let refused = |_: &mut Request| "x";
    let csrf = start(refused.with(Csrf::new()));
    let router = || Router::new().post("/{name}", || "a").put("/{name}", || "a");
    let cors = start(router().with(Cors::origins(["https://app.example"]).unwrap().headers(["x-key"]).unwrap()));
    let path = format!("/{}", csrf.local_addr().unwrap().port());
    for (fields, parts) in [
        ("Origin: null", ["no-referrer", "Referrer-Policy must be"]),
        ("Origin: https://a.example", ["\"https://a.example\"", "trusted_proxies"]),
        ("Sec-Fetch-Site: cross-site\r\nOrigin: https://b.example", ["cross-site", "b.example may send it: Csrf::trust"]),
    ] {
        let mut client = Client::connect(&csrf);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{fields}\r\n\r\n"));
        assert_eq!(client.answer().status, 403);
        is_logged(&[&path, parts[0], parts[1]]);
    }
    let path = format!("/{}", cors.local_addr().unwrap().port());
    for (origin, method, headers, part) in [
        ("https://app.example", "POST", "authorization, x-key", "the header authorization (Cors::headers)"),
        ("https://app.example", "PUT", "x-key", "the method PUT (Cors::methods)"),
        ("https://app.example", "DELETE", "x-key", "no route behind this Cors has that method"),
        ("https://other.example", "POST", "x-key", "this origin (Cors::origins"),
    ] {
        let mut client = Client::connect(&cors);
        let fields = format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: {headers}\r\n"
        );
        client.send(format!("OPTIONS {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        client.answer();
        is_logged(&[origin, method, &path, part]);
    }
}
