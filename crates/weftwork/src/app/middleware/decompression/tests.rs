//! Tests that compressed bodies are read correctly, and that malicious ones are refused.

use std::io::Write;

use super::*;
use crate::app::middleware::HandlerExt;
use crate::message::testing::Canned;
use crate::{Result, Router, State, TestClient, handler};

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

fn pack(coding: &str, bytes: &[u8]) -> Vec<u8> {
    match coding {
        "zstd" => zstd::encode_all(bytes, 3).unwrap(),
        "br" => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 22);
            writer.write_all(bytes).unwrap();
            writer.into_inner()
        }
        _ => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
    }
}

fn words(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| format!("word {} ", number * 7919 % 1000).into_bytes()).collect()
}

fn echo(req: &mut Request<'_>) -> Result<Response> {
    assert_eq!(
        (req.header("content-encoding"), req.header("content-length"), req.body_left()),
        (None, None, None)
    );
    assert_eq!((req.header("content-digest"), req.header("content-md5")), (None, None));
    assert_eq!((req.header("x-kept"), req.headers().get("content-encoding")), (Some("kept"), None));
    Ok(Response::bytes(req.body().bytes()?))
}

fn post(coding: &str, parts: &[&[u8]]) -> Response {
    let digest = ("Content-Digest", "sha-256=:of the coded bytes:");
    let old_digest = ("Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ==");
    let fields =
        [("Content-Encoding", coding), ("Content-Length", "7"), digest, old_digest, ("X-Kept", "kept")];
    Canned::asking("POST", "/", &fields)
        .carrying(parts)
        .promising(7000)
        .call(&echo.with(Decompression::new()))
}

#[track_caller]
fn refused(status: u16, coding: &str, body: &[u8]) {
    assert_eq!(post(coding, &[body]).status().as_u16(), status, "{coding}");
}

#[test]
fn every_coding_whole_and_byte_by_byte() {
    for coding in CODINGS {
        for text in [&b"hello"[..], b"", &words(3000)] {
            let packed = pack(coding, text);
            assert_eq!(post(coding, &[&packed]).body().unwrap(), text, "{coding}");
            let bytes: Vec<&[u8]> = packed.chunks(1).collect();
            assert_eq!(post(coding, &bytes).body().unwrap(), text, "{coding}");
        }
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    let gzip = pack("gzip", b"hello");
    for name in ["GZIP", "x-gzip", " gzip , identity", "identity, gzip", ",gzip,"] {
        assert_eq!(post(name, &[&gzip]).body().unwrap(), "hello", "{name}");
    }
}

#[test]
fn a_body_without_a_coding_is_left_alone() {
    let length = |req: &mut Request<'_>| -> Result<Response> { Ok(Response::bytes(req.body().bytes()?)) };
    for fields in [&[][..], &[("Content-Encoding", "identity")], &[("Content-Encoding", "")]] {
        let mut canned = Canned::asking("POST", "/", fields).carrying(&[b"as it is"]);
        assert_eq!(canned.call(&length.with(Decompression::new())).body().unwrap(), "as it is");
    }
}

#[test]
fn other_codings_are_415_with_the_supported_ones() {
    for name in ["deflate", "compress", "gzip, gzip", "br, gzip", "aes128gcm", "\u{fc}"] {
        let response = post(name, &[b"x"]);
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{name}");
        assert_eq!(response.header(header::ACCEPT_ENCODING).unwrap(), "zstd, br, gzip");
    }
}

#[test]
fn several_members_are_one_body() {
    for coding in ["gzip", "zstd"] {
        let two = [pack(coding, b"one "), pack(coding, b"two")].concat();
        assert_eq!(post(coding, &[&two]).body().unwrap(), "one two", "{coding}");
        let bytes: Vec<&[u8]> = two.chunks(1).collect();
        assert_eq!(post(coding, &bytes).body().unwrap(), "one two", "{coding}");
    }
}

#[test]
fn a_truncated_body_is_an_error() {
    for coding in CODINGS {
        let packed = pack(coding, &words(100));
        for end in 1..packed.len() {
            refused(400, coding, &packed[..end]);
        }
    }
}

#[test]
fn garbage_is_an_error() {
    for coding in CODINGS {
        refused(400, coding, b"this was never compressed by anybody");
        refused(400, coding, &[pack(coding, b"hello"), b"and more".to_vec()].concat());
        let mut damaged = pack(coding, &words(200));
        let middle = damaged.len() / 2;
        damaged[middle..middle + 8].fill(0xff);
        assert_ne!(post(coding, &[&damaged]).body().unwrap(), &words(200));
    }
}

/// CVE-2018-1000518 and similar: a few kilobytes that decode to gigabytes.
#[test]
fn a_decompression_bomb_is_refused_before_it_is_decoded() {
    for coding in CODINGS {
        let bomb = pack(coding, &vec![0; 4 << 20]);
        assert!(bomb.len() < 16 << 10, "{coding}: {}", bomb.len());
        refused(413, coding, &bomb);
        let limitless = (|req: &mut Request<'_>| -> Result<Response> {
            let read = std::io::copy(&mut req.body().limit(u64::MAX), &mut std::io::sink());
            Ok(Response::text(read?.to_string()))
        })
        .with(Decompression::new());
        let mut canned = Canned::asking("POST", "/", &[("Content-Encoding", coding)]).carrying(&[&bomb]);
        assert_eq!(
            canned.call(&limitless).status(),
            StatusCode::PAYLOAD_TOO_LARGE,
            "{coding}: the ratio holds alone"
        );
    }
}

#[test]
fn the_limit_is_on_the_decoded_bytes() {
    for coding in CODINGS {
        let packed = pack(coding, &words(20_000));
        let limited = (|req: &mut Request<'_>| -> Result<Response> {
            Ok(Response::text(req.body().limit(100_000).bytes()?.len().to_string()))
        })
        .with(Decompression::new());
        let mut canned = Canned::asking("POST", "/", &[("Content-Encoding", coding)]).carrying(&[&packed]);
        assert!(packed.len() < 100_000);
        assert_eq!(canned.call(&limited).status(), StatusCode::PAYLOAD_TOO_LARGE, "{coding}");
    }
}

/// A short text may have any ratio, and the ratio can be set.
#[test]
fn the_ratio_counts_past_the_first_bytes() {
    for coding in CODINGS {
        let zeros = vec![b'0'; 60 << 10];
        assert_eq!(post(coding, &[&pack(coding, &zeros)]).body().unwrap(), &zeros);
        let zeros = vec![b'0'; 1 << 20];
        refused(413, coding, &pack(coding, &zeros));
        let high = (|req: &mut Request<'_>| -> Result<Response> { Ok(Response::bytes(req.body().bytes()?)) })
            .with(Decompression::new().ratio_max(1_000_000));
        let mut canned =
            Canned::asking("POST", "/", &[("Content-Encoding", coding)]).carrying(&[&pack(coding, &zeros)]);
        assert_eq!(canned.call(&high).body().unwrap(), &zeros);
    }
}

/// Empty members never reach a limit on the decoded size.
#[test]
fn a_body_that_decodes_to_nothing_without_end_is_refused() {
    let empty = pack("gzip", b"").repeat(20_000);
    refused(400, "gzip", &empty);
    let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &1000_u32.to_le_bytes(), &[0; 1000]].concat();
    refused(400, "zstd", &skippable.repeat(500));
}

/// A frame that needs more memory than RFC 9659 allows.
#[test]
fn large_windows_are_refused() {
    let mut writer = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    writer.set_parameter(zstd::stream::raw::CParameter::WindowLog(24)).unwrap();
    writer.write_all(&words(100)).unwrap();
    refused(400, "zstd", &writer.finish().unwrap());
    let params =
        brotli::enc::BrotliEncoderParams { quality: 5, lgwin: 26, large_window: true, ..Default::default() };
    let mut writer = brotli::CompressorWriter::with_params(Vec::new(), 4096, &params);
    writer.write_all(&words(100)).unwrap();
    refused(400, "br", &writer.into_inner());
}

#[test]
fn a_streamed_response_reads_the_decoded_body_too() {
    let shout = (|req: &mut Request<'_>| {
        req.extensions_mut().insert(7_u32);
        Response::stream(|out| {
            let mut part = [0; 5];
            loop {
                let count = out.read_request(&mut part)?;
                if count == 0 {
                    return Ok(());
                }
                out.write_all(&part[..count].to_ascii_uppercase())?;
            }
        })
    })
    .with(Decompression::new())
    .with(|req: &mut Request<'_>, next: Next<'_>| {
        let response = next.run(req);
        assert_eq!(req.extensions().get(), Some(&7_u32), "extensions come back");
        response
    });
    let packed = pack("br", b"read while it is written");
    let mut canned = Canned::asking("POST", "/", &[("Content-Encoding", "br")]).carrying(&[&packed]);
    let response = canned.call(&shout);
    assert_eq!(canned.body_of(response), b"READ WHILE IT IS WRITTEN");
}

#[test]
fn an_error_stays_an_error() {
    let twice = (|req: &mut Request<'_>| {
        let (first, second) = (req.body().bytes(), req.body().bytes());
        assert!(first.is_err() && first == second, "{first:?} {second:?}");
    })
    .with(Decompression::new());
    Canned::asking("POST", "/", &[("Content-Encoding", "gzip")])
        .carrying(&[b"garbage", b"more"])
        .call(&twice);
}

/// Data that a router adds to the request is visible behind the middleware, and is removed before the next
/// mount.
#[test]
fn captures_states_and_mounts_are_kept_inside_decompression() {
    struct Name(&'static str);
    fn show(State(name): State<Name>, req: &mut Request<'_>) -> Result<String> {
        let at = format!("{} {} {}", name.0, req.mounted_at(), req.path());
        let id = req.param("id").map(|id| id.into_owned());
        Ok(format!("{at} {id:?} {}", req.body().text()?))
    }
    let api = || Router::new().post("/u/{id}", handler(show).with(Decompression::new()));
    let declines = |_: &mut Request<'_>| Response::decline();
    let site = Router::new()
        .nest("/", api())
        .mount("/mount", api().with(Decompression::new()))
        .mount("/next", declines.with(Decompression::new()))
        .fallback(handler(show).with(Decompression::new()))
        .state(Name("name"));
    let mut client = TestClient::new(site);
    for (path, wanted) in [
        ("/u/7", "name  /u/7 Some(\"7\") hello"),
        ("/mount/u/8", "name /mount /u/8 Some(\"8\") hello"),
        ("/next/u/9", "name  /next/u/9 None hello"),
    ] {
        let sent = client.post(path).header("content-encoding", "gzip").body(pack("gzip", b"hello"));
        assert_eq!(sent.send().text(), wanted);
    }
}

#[test]
fn trailers_are_kept_except_those_about_the_coded_bytes() {
    let seen = |req: &mut Request<'_>| -> Result<String> {
        let before = req.trailers().len();
        let text = req.body().text()?;
        let names: Vec<_> = req.trailers().iter().map(|(name, _)| name.as_str()).collect();
        Ok(format!("{before} {text} {names:?}"))
    };
    let mut client = TestClient::new(seen.with(Decompression::new())).connect();
    let packed = pack("gzip", b"hello");
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("{:x}\r\n", packed.len()));
    client.send(packed);
    client.send("\r\n0\r\nX-Sum: 1\r\nContent-Digest: sha-256=:AAAA:\r\n\r\n");
    assert_eq!(client.response().text(), "0 hello [\"x-sum\"]");
}
