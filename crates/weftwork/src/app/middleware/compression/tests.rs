//! Tests that compressed content decodes to the original, and that content which must not change is left alone.

use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};

use http::HeaderName;

use super::*;
use crate::TestClient;
use crate::app::middleware::HandlerExt;
use crate::message::testing::Canned;

const ALL: &str = "gzip, br, zstd";

fn words() -> String {
    (0..500).map(|number| format!("line {number} of a text\n")).collect()
}

fn undo(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    match coding {
        "zstd" => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut all).unwrap(),
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut all).unwrap(),
        "gzip" => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut all).unwrap(),
        other => panic!("{other}"),
    };
    all
}

/// Returns the coding of the answer, its fields, and its decoded body.
fn ask(method: &str, accept: &str, handler: impl crate::Handler) -> (Option<String>, Response, Vec<u8>) {
    let site = handler.with(Compression::new());
    let mut canned = Canned::asking(method, "/", &[("Accept-Encoding", accept)]);
    let response = canned.call(&site);
    let coding = response.header(header::CONTENT_ENCODING).map(str::to_owned);
    let mut fields = Response::new(response.status());
    fields.fields = response.header_lines().to_vec();
    fields.content_type = response.content_type().cloned();
    let sent = if method == "HEAD" { Vec::new() } else { canned.body_of(response) };
    let body = match &coding {
        Some(coding) if method != "HEAD" => undo(coding, &sent),
        _ => sent,
    };
    (coding, fields, body)
}

fn page(_: &mut Request<'_>) -> Response {
    Response::text(words()).with_header(header::ETAG, HeaderValue::from_static("\"1\""))
}

#[test]
fn a_text_in_every_coding() {
    for coding in ["zstd", "br", "gzip"] {
        let (chosen, fields, body) = ask("GET", coding, page);
        assert_eq!(chosen.as_deref(), Some(coding));
        assert_eq!(body, words().as_bytes());
        assert_eq!(fields.header(header::VARY).unwrap(), "accept-encoding");
        assert_eq!(fields.header(header::ETAG).unwrap(), "W/\"1\"");
    }
    assert_eq!(ask("GET", ALL, page).0.as_deref(), Some("zstd"));
}

#[test]
fn without_accept_encoding_the_response_is_plain_and_has_vary() {
    for accept in ["", "identity", "*;q=0", "deflate"] {
        let (coding, fields, body) = ask("GET", accept, page);
        assert_eq!((coding, body.as_slice()), (None, words().as_bytes()));
        assert_eq!(fields.header(header::VARY).unwrap(), "accept-encoding");
        assert_eq!(fields.header(header::ETAG).unwrap(), "\"1\"");
    }
}

#[track_caller]
fn untouched(response: impl Fn() -> Response + Send + Sync + 'static) {
    let before = Canned::asking("GET", "/", &[]).body_of(response());
    let (expected, tag) =
        (response().header_lines().len(), response().header(header::ETAG).map(str::to_owned));
    let (coding, fields, body) = ask("GET", ALL, move |_: &mut Request<'_>| response());
    assert_eq!(coding, None, "{fields:?}");
    assert_eq!((body == before, fields.header_lines().len()), (true, expected), "{fields:?}");
    assert_eq!(fields.header(header::ETAG), tag.as_deref());
}

fn with(name: HeaderName, value: &'static str) -> Response {
    Response::text(words()).with_header(name, HeaderValue::from_static(value))
}

#[test]
fn what_must_stay_as_it_is() {
    untouched(|| Response::text("short"));
    untouched(|| Response::text("x".repeat(255)));
    untouched(|| Response::new(StatusCode::NO_CONTENT));
    untouched(|| Response::bytes(words()));
    untouched(|| Response::text(words()).with_content_type(HeaderValue::from_static("image/png")));
    untouched(|| Response::text(words()).with_content_type(HeaderValue::from_static("text/event-stream")));
    untouched(|| with(header::CONTENT_RANGE, "bytes 0-1/2"));
    untouched(|| with(header::CACHE_CONTROL, "public, no-transform"));
    untouched(|| with(HeaderName::from_static("repr-digest"), "sha-256=:AAAA:"));
    untouched(|| with(HeaderName::from_static("content-md5"), "Q2hlY2sgSW50ZWdyaXR5IQ=="));
    untouched(|| {
        Response::stream(|out| out.write_all(b"data: now\n\n"))
            .with_content_type(HeaderValue::from_static("text/event-stream; charset=utf-8"))
    });
}

#[test]
fn what_is_encoded_already_is_not_encoded_again() {
    let encoded = |_: &mut Request<'_>| with(header::CONTENT_ENCODING, "gzip");
    let response =
        Canned::asking("GET", "/", &[("Accept-Encoding", ALL)]).call(&encoded.with(Compression::new()));
    assert_eq!(response.body().unwrap(), words().as_bytes());
    assert_eq!(response.header_values(header::CONTENT_ENCODING).collect::<Vec<_>>(), ["gzip"]);
}

#[test]
fn the_client_may_forbid_it() {
    let fields = [("Accept-Encoding", ALL), ("Cache-Control", "no-transform")];
    let response = Canned::asking("GET", "/", &fields).call(&page.with(Compression::new()));
    assert_eq!(response.header(header::CONTENT_ENCODING), None);
}

/// Bytes without a pattern only get longer.
#[test]
fn what_does_not_shrink_is_sent_as_it_is() {
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(4096)
    .collect();
    let sent = noise.clone();
    let (coding, fields, body) = ask("GET", "gzip", move |_: &mut Request<'_>| Response::text(sent.clone()));
    assert_eq!((coding, body), (None, noise));
    assert_eq!(fields.header(header::VARY).unwrap(), "accept-encoding");
}

#[test]
fn small_bodies_may_be_compressed_where_that_is_wished() {
    let site = (|_: &mut Request<'_>| "a".repeat(100)).with(Compression::new().bytes_min(0));
    let response = Canned::asking("GET", "/", &[("Accept-Encoding", "gzip")]).call(&site);
    assert_eq!(response.header(header::CONTENT_ENCODING).unwrap(), "gzip");
}

#[test]
fn a_stream_is_compressed_on_its_way() {
    let stream = |_: &mut Request<'_>| {
        let length = HeaderValue::from(words().len());
        let write = |out: &mut BodyWriter<'_>| words().lines().try_for_each(|line| writeln!(out, "{line}"));
        Response::stream(write)
            .with_content_type(HeaderValue::from_static("text/plain"))
            .with_header(header::CONTENT_LENGTH, length)
    };
    for coding in ["zstd", "br", "gzip"] {
        let (chosen, fields, body) = ask("GET", coding, stream);
        assert_eq!((chosen.as_deref(), body.as_slice()), (Some(coding), words().as_bytes()));
        assert_eq!(fields.header(header::CONTENT_LENGTH), None);
    }
}

/// Bytes that were written before a flush can be read before anything else is written.
#[test]
fn a_flush_brings_everything_to_the_client() {
    for coding in ["zstd", "br", "gzip"] {
        let stream = |_: &mut Request<'_>| {
            Response::stream(|out| {
                out.write_all(b"first")?;
                out.flush()?;
                Err(io::Error::other("the test looks at what was sent until here"))
            })
            .with_content_type(HeaderValue::from_static("text/plain"))
        };
        let mut canned = Canned::asking("GET", "/", &[("Accept-Encoding", coding)]);
        let response = canned.call(&stream.with(Compression::new()));
        let sent = canned.sent_by(response);
        let mut first = [0; 5];
        match coding {
            "zstd" => zstd::stream::read::Decoder::new(&sent[..]).unwrap().read_exact(&mut first).unwrap(),
            "br" => brotli::Decompressor::new(&sent[..], 4096).read_exact(&mut first).unwrap(),
            _ => flate2::read::GzDecoder::new(&sent[..]).read_exact(&mut first).unwrap(),
        }
        assert_eq!(&first, b"first", "{coding}");
    }
}

#[test]
fn a_file_is_compressed_while_it_is_sent() {
    let path = std::env::temp_dir().join(format!("weftwork-compression-{}", std::process::id()));
    std::fs::write(&path, words().repeat(20)).unwrap();
    let opened = path.clone();
    let file = move |_: &mut Request<'_>| {
        let ranges = HeaderValue::from_static("bytes");
        let file =
            Response::file(File::open(&opened).unwrap()).unwrap().with_header(header::ACCEPT_RANGES, ranges);
        file.with_content_type(HeaderValue::from_static("text/plain"))
    };
    let (coding, fields, body) = ask("GET", "br", file.clone());
    assert_eq!((coding.as_deref(), body), (Some("br"), words().repeat(20).into_bytes()));
    assert_eq!(fields.header(header::ACCEPT_RANGES), None);
    let (coding, fields, body) = ask("GET", "", file);
    assert_eq!((coding, body.len()), (None, words().len() * 20));
    assert!(fields.header(header::ACCEPT_RANGES).is_some());
    std::fs::remove_file(path).unwrap();
}

/// RFC 9110 section 9.3.2: the fields are those of GET.
#[test]
fn head_tells_what_get_would() {
    let (coding, fields, _) = ask("HEAD", "gzip", page);
    assert_eq!(coding.as_deref(), Some("gzip"));
    assert_eq!(fields.header(header::ETAG).unwrap(), "W/\"1\"");
}

/// Proxies, and handlers for HEAD alone, have the length and no content to compress (section 8.6).
#[test]
fn head_tells_what_get_would_of_a_length_that_is_only_declared() {
    let declaring = |length: u64| {
        move |_: &mut Request<'_>| {
            let mut response = page(&mut Canned::asking("GET", "/", &[]).request(0));
            response.payload = crate::message::Payload::Empty;
            response.with_header(header::CONTENT_LENGTH, length)
        }
    };
    let (coding, fields, _) = ask("HEAD", "gzip", declaring(5000));
    assert_eq!(coding.as_deref(), Some("gzip"));
    assert_eq!(fields.header(header::CONTENT_LENGTH), None);
    assert_eq!(fields.header(header::ETAG), Some("W/\"1\""));
    assert_eq!(fields.header(header::VARY), Some("accept-encoding"));
    let (coding, fields, _) = ask("HEAD", "", declaring(5000));
    assert_eq!((coding, fields.header(header::CONTENT_LENGTH)), (None, Some("5000")));
    assert_eq!(fields.header(header::VARY), Some("accept-encoding"));
    let (coding, fields, _) = ask("HEAD", "gzip", declaring(20));
    assert_eq!((coding, fields.header(header::CONTENT_LENGTH)), (None, Some("20")));
    assert_eq!(fields.header(header::ETAG), Some("\"1\""));
    // A response without content must not claim a coding.
    assert_eq!(ask("GET", "gzip", declaring(5000)).0, None);
}

#[test]
fn a_304_has_the_tag_of_what_it_stands_for() {
    let fresh = |_: &mut Request<'_>| {
        Response::new(StatusCode::NOT_MODIFIED).with_header(header::ETAG, HeaderValue::from_static("\"1\""))
    };
    let ask = |fields: &[(&str, &str)], tag: &str| {
        let response = Canned::asking("GET", "/", fields).call(&fresh.with(Compression::new()));
        assert_eq!(response.header(header::ETAG), Some(tag), "{fields:?}");
        assert_eq!(response.header(header::VARY).unwrap(), "accept-encoding");
    };
    let gzip = ("Accept-Encoding", "gzip");
    for (known, tag) in [
        ("W/\"1\"", "W/\"1\""),
        ("\"0\", W/\"1\"", "W/\"1\""),
        // A picture, or content that was compressed before: it was sent unchanged, with a strong tag.
        ("\"1\"", "\"1\""),
        ("W/\"11\", \"1\"", "\"1\""),
        // A 200 would be compressed now.
        ("*", "W/\"1\""),
    ] {
        ask(&[gzip, ("If-None-Match", known)], tag);
    }
    let since = ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT");
    ask(&[gzip, since], "W/\"1\"");
    ask(&[since], "\"1\"");
    ask(&[gzip, since, ("Cache-Control", "no-transform")], "\"1\"");
    // The client's content was compressed, and the request now asks for another form.
    ask(&[since, ("If-None-Match", "W/\"1\"")], "W/\"1\"");
}

#[test]
fn vary_is_said_once() {
    for (given, expected) in [("accept-encoding", 1), ("Origin, Accept-Encoding", 1), ("*", 1), ("Origin", 2)]
    {
        let varying = move |_: &mut Request<'_>| with(header::VARY, given);
        let (_, fields, _) = ask("GET", "gzip", varying);
        assert_eq!(fields.header_values(header::VARY).count(), expected, "{given}");
    }
}

/// A mount without an answer declines, and the next one is called.
#[test]
fn what_is_declined_stays_so() {
    let lost = |_: &mut Request<'_>| Response { declined: true, ..Response::text("not here, ".repeat(100)) };
    let site = crate::Router::new().mount("/", lost.with(Compression::new())).fallback(|| "found");
    let mut canned = Canned::asking("GET", "/", &[("Accept-Encoding", "gzip")]);
    let response = canned.call(&site);
    assert_eq!(response.body().unwrap(), "found");
}

/// RFC 9110 section 15.3.7: the fields of the 200.
#[test]
fn a_part_varies_as_the_whole_does() {
    for (content_type, varies) in [
        ("text/plain", true),
        ("multipart/byteranges; boundary=x", true),
        ("image/png", false),
        ("multipart/mixed", false),
    ] {
        let part = move |_: &mut Request<'_>| {
            let part = Response::bytes("part").with_status(StatusCode::PARTIAL_CONTENT);
            part.with_content_type(HeaderValue::from_static(content_type))
        };
        let (coding, fields, _) = ask("GET", ALL, part);
        assert_eq!((coding, fields.header(header::VARY).is_some()), (None, varies), "{content_type}");
    }
}

/// Otherwise the digest would be that of other bytes.
#[test]
fn a_digest_that_is_to_come_is_left_true() {
    for (trailer, touched) in [("x-sum", true), ("x-sum, Content-Digest", false), ("repr-digest", false)] {
        let stream = move |_: &mut Request<'_>| {
            let stream = Response::stream(|out| io::Write::write_all(out, words().as_bytes()));
            let stream = stream.with_content_type(HeaderValue::from_static("text/plain"));
            stream.with_header(header::TRAILER, HeaderValue::from_static(trailer))
        };
        assert_eq!(ask("GET", ALL, stream).0.is_some(), touched, "{trailer}");
    }
}

#[test]
fn an_unannounced_digest_is_not_sent() {
    let named = |name| (HeaderName::from_static(name), HeaderValue::from_static("of the text"));
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let stream = move |_: &mut Request<'_>| {
        let tells = tells.clone();
        Response::stream(move |out| {
            io::Write::write_all(out, words().as_bytes())?;
            for fields in [&[named("x-rows")][..], &[named("content-digest"), named("x-sum")]] {
                tells.lock().unwrap().push(out.trailers(fields)?);
            }
            Ok(())
        })
        .with_content_type(HeaderValue::from_static("text/plain"))
    };
    let mut client = TestClient::new(stream.with(Compression::new()));
    for (coding, digest) in [("gzip", None), ("identity", Some("of the text"))] {
        let answer = client.get("/").header("accept-encoding", coding).header("te", "trailers").send();
        let trailer = |name| answer.trailers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!((trailer("x-rows"), trailer("x-sum")), (Some("of the text"), Some("of the text")));
        assert_eq!(trailer("content-digest"), digest, "{coding}");
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), [true, digest.is_some()]);
    }
}

/// The date is that of the compressed and of the uncompressed bytes (RFC 9110 section 8.8.1).
#[test]
fn a_date_joins_no_plain_part_to_compressed_ones() {
    let dir = std::env::temp_dir().join(format!("weftwork-parts-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let noon = std::time::UNIX_EPOCH + std::time::Duration::new(784_111_777, 1);
    for name in ["page.txt", "film.mp4"] {
        std::fs::write(dir.join(name), words()).unwrap();
        File::options().write(true).open(dir.join(name)).unwrap().set_modified(noon).unwrap();
    }
    let site = crate::files(&dir).unwrap().precompressed(false).with(Compression::new());
    let mut client = TestClient::new(site);
    let tag = client.get("/page.txt").send().header("etag").unwrap().to_owned();
    let (date, weak) = ("Sun, 06 Nov 1994 08:49:37 GMT", format!("W/{tag}"));
    for (name, value, is_part) in [
        ("if-range", date, false),
        ("if-range", &weak, false),
        ("if-range", &tag, true),
        ("if-range", "\"other\"", false),
        ("if-unmodified-since", date, false),
        ("if-match", &tag, true),
        ("x-other", "x", true),
    ] {
        for ranges in ["0-9", "0-9,400-409"] {
            for coding in ["gzip", "identity"] {
                let ask = client.get("/page.txt").header("accept-encoding", coding).header(name, value);
                let answer = ask.header("range", format!("bytes={ranges}")).send();
                let wanted =
                    if is_part { (206, None) } else { (200, Some("gzip").filter(|own| *own == coding)) };
                let got = (answer.status.as_u16(), answer.header("content-encoding"));
                assert_eq!(got, wanted, "{name}: {value}, {ranges} as {coding}");
                assert_eq!(answer.header("vary"), Some("accept-encoding"));
            }
        }
    }
    // A film is never compressed, so the date is that of its bytes.
    let ask = client.get("/film.mp4").header("accept-encoding", "gzip").header("if-range", date);
    assert_eq!(ask.header("range", "bytes=0-9").send().status.as_u16(), 206);
    std::fs::remove_dir_all(dir).unwrap();
}

/// RFC 9110 section 8.6: the length is the one that a 200 would have had.
#[test]
fn a_304_has_no_length_of_other_bytes() {
    for (kind, coding, wanted) in [
        ("max-age=9", "gzip", None),
        ("max-age=9", "identity", Some("5000")),
        ("no-transform", "gzip", Some("5000")),
    ] {
        let fresh = move |_: &mut Request<'_>| {
            Response::new(StatusCode::NOT_MODIFIED)
                .with_header(header::ETAG, HeaderValue::from_static("\"1\""))
                .with_header(header::CACHE_CONTROL, HeaderValue::from_static(kind))
                .with_header(header::CONTENT_LENGTH, HeaderValue::from_static("5000"))
        };
        for method in [Method::HEAD, Method::GET] {
            let mut client = TestClient::new(fresh.with(Compression::new()));
            let ask = client.request(method.clone(), "/").header("accept-encoding", coding);
            let answer = ask.header("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT").send();
            let got = (answer.status.as_u16(), answer.header("content-length"));
            assert_eq!(got, (304, wanted), "{method} {kind} {coding}");
            let tag = if wanted.is_none() { "W/\"1\"" } else { "\"1\"" };
            assert_eq!(answer.header("etag"), Some(tag), "{method} {kind} {coding}");
        }
    }
}

/// A higher level makes this text shorter in every coding.
#[test]
fn levels_are_those_that_are_set() {
    let new = Compression::new;
    let low = new().zstd_level(1).and_then(|it| it.brotli_level(0)).and_then(|it| it.gzip_level(1)).unwrap();
    let high =
        new().zstd_level(19).and_then(|it| it.brotli_level(11)).and_then(|it| it.gzip_level(9)).unwrap();
    for coding in ["zstd", "br", "gzip"] {
        let bytes = |compression: &Compression| {
            let site = page.with(compression.clone());
            let response = Canned::asking("GET", "/", &[("Accept-Encoding", coding)]).call(&site);
            let body = response.body().unwrap().clone();
            assert_eq!(undo(coding, &body), words().as_bytes());
            body.len()
        };
        assert!(bytes(&high) < bytes(&low), "{coding}");
    }
    for wrong in [
        new().zstd_level(0),
        new().zstd_level(20),
        new().brotli_level(12),
        new().gzip_level(0),
        new().gzip_level(10),
    ] {
        assert!(wrong.unwrap_err().message().contains("must be from"));
    }
}

#[test]
fn only_listed_types_are_compressed() {
    let compression = Compression::new().media_types(["application/cbor"]).unwrap();
    for (content_type, coding) in [("application/cbor", Some("gzip")), ("text/plain", None)] {
        let body = move |_: &mut Request<'_>| {
            Response::text(words()).with_content_type(HeaderValue::from_static(content_type))
        };
        let site = body.with(compression.clone());
        let response = Canned::asking("GET", "/", &[("Accept-Encoding", "gzip")]).call(&site);
        assert_eq!(response.header(header::CONTENT_ENCODING), coding, "{content_type}");
    }
}
