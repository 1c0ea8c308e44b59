//! Tests that files are sent whole or in the requested ranges, in the form that clients accept, and that
//! nothing else is sent.

use std::fs;
use std::io::Write;
use std::time::{Duration, SystemTime};

use weftwork::http::HeaderValue;
use weftwork::{Files, Running, embedded, file, files};

use super::CASE;
use crate::support::{Answer, CHANGED, Client, Guarantee, Tree, eventually, noise};

const MIB: usize = 1 << 20;

fn serve(files: Files) -> Running {
    CASE.bind("127.0.0.1:0").start(files).expect("the server starts")
}

fn tree(tree: &Tree) -> Files {
    files(tree.path()).expect("the directory is there")
}

/// Sends a GET with these lines. The answer must arrive whole.
#[track_caller]
fn ask(client: &mut Client, path: &str, lines: &str) -> Answer {
    let lines: String = lines.lines().map(|line| format!("{line}\r\n")).collect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    client.answer()
}

#[test]
fn every_size_around_the_buffers_is_sent_whole() {
    let tree = Tree::new();
    let sizes = [0, 1, 1023, 4095, 4096, 4097, 16_385, 65_536, 262_144, 262_145, 3 * MIB + 7];
    for size in sizes {
        tree.write(&format!("{size}.bin"), noise(size));
    }
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    for size in sizes {
        let path = format!("/{size}.bin");
        client.get(&path).is(200, noise(size));
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.answer_to_head();
        assert_eq!(head.field("content-length"), Some(size.to_string().as_str()), "{head:?}");
    }
    let pipelined: String =
        sizes.iter().map(|size| format!("GET /{size}.bin HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(pipelined);
    for size in sizes {
        client.answer().is(200, noise(size));
    }
}

#[test]
fn rfc9110_8_what_describes_a_file() {
    let tree = Tree::new();
    tree.write("page.html", "<p>");
    let server = serve(self::tree(&tree).cache_control(HeaderValue::from_static("max-age=60")));
    let answer = Client::connect(&server).get("/page.html");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "3"),
        ("last-modified", CHANGED),
        ("etag", "\"ae1b981bc490a01-3\""),
        ("accept-ranges", "bytes"),
        ("cache-control", "max-age=60"),
        ("vary", "Accept-Encoding"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.field(name), Some(value), "{name}");
    }
}

#[test]
fn rfc9110_14_ranges() {
    let tree = Tree::new();
    let bytes = noise(100_000);
    tree.write("a.bin", &bytes);
    tree.write("empty", "");
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    for (range, first, last) in [
        ("0-0", 0, 0),
        ("0-499", 0, 499),
        ("99999-", 99_999, 99_999),
        ("-1", 99_999, 99_999),
        ("-200000", 0, 99_999),
        ("10-200000", 10, 99_999),
        ("20000-59999", 20_000, 59_999),
        ("5-9,0-4", 0, 9),
        // Long ranges are read up to the next page boundary, and sent with sendfile(2) from there.
        ("10-61449", 10, 61_449),
        ("10-61450", 10, 61_450),
        ("4095-", 4095, 99_999),
        ("4096-", 4096, 99_999),
    ] {
        let part = ask(&mut client, "/a.bin", &format!("Range: bytes={range}"));
        assert_eq!(part.field("content-range"), Some(format!("bytes {first}-{last}/100000").as_str()));
        assert_eq!(part.field("content-type"), Some("application/octet-stream"));
        assert!(part.field("etag").is_some() && part.field("last-modified").is_some());
        part.is(206, &bytes[first..=last]);
    }
    for whole in ["bytes=", "bytes=a-b", "bytes=5-2", "lines=0-4", "bytes=0-0,x", &many_ranges(17)] {
        let answer = ask(&mut client, "/a.bin", &format!("Range: {whole}"));
        assert_eq!(answer.field("content-range"), None, "{whole}");
        answer.is(200, &bytes);
    }
    for behind in ["100000-", "-0", "200000-300000", "99999999999999999999999-"] {
        let answer = ask(&mut client, "/a.bin", &format!("Range: bytes={behind}"));
        assert_eq!((answer.status, answer.field("content-range")), (416, Some("bytes */100000")), "{behind}");
    }
    ask(&mut client, "/empty", "Range: bytes=0-").is(200, "");
    client.send("HEAD /a.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n");
    let head = client.answer_to_head();
    assert_eq!((head.status, head.field("content-length")), (200, Some("100000")));
}

/// Returns `count` ranges that begin a thousand bytes apart.
fn many_ranges(count: usize) -> String {
    let specs: Vec<String> = (0..count).map(|at| format!("{}-{}", at * 1000, at * 1000 + 9)).collect();
    format!("bytes={}", specs.join(","))
}

#[test]
fn rfc9110_14_6_several_ranges() {
    let tree = Tree::new();
    let bytes = noise(3 * MIB);
    tree.write("a.txt", &bytes);
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    // Small ranges, one larger than the kernel takes at once, and one before another.
    for ranges in [vec![(0, 9), (3000, 3009)], vec![(500_000, 3_000_000), (0, 0), (100_000, 149_999)]] {
        let specs: Vec<String> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        let answer = ask(&mut client, "/a.txt", &format!("Range: bytes={}", specs.join(", ")));
        assert_eq!((answer.status, answer.field("content-range")), (206, None), "{answer:?}");
        let (kind, boundary) = answer.field("content-type").unwrap().split_once("; boundary=").unwrap();
        assert_eq!(kind, "multipart/byteranges");
        let mut want = Vec::new();
        for (index, (first, last)) in ranges.iter().enumerate() {
            let before = if index == 0 { "" } else { "\r\n" };
            write!(want, "{before}--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n").unwrap();
            write!(want, "Content-Range: bytes {first}-{last}/{}\r\n\r\n", bytes.len()).unwrap();
            want.extend_from_slice(&bytes[*first..=*last]);
        }
        write!(want, "\r\n--{boundary}--\r\n").unwrap();
        answer.is(206, want);
    }
    let sixteen = ask(&mut client, "/a.txt", &format!("Range: {}", many_ranges(16)));
    let parts = sixteen.body.windows(15).filter(|part| part == b"Content-Range: ").count();
    assert_eq!((sixteen.status, parts), (206, 16));
    client.get("/a.txt").is(200, &bytes);
}

#[test]
fn rfc9110_13_conditions() {
    let tree = Tree::new();
    tree.write("a.bin", noise(1000));
    let server = serve(self::tree(&tree).cache_control(HeaderValue::from_static("no-cache")));
    let mut client = Client::connect(&server);
    let tag = client.get("/a.bin").field("etag").unwrap().to_owned();
    let before = "Sun, 06 Nov 1994 08:49:36 GMT";
    let mut check = |lines: &str, status: u16| {
        let answer = ask(&mut client, "/a.bin", lines);
        assert_eq!(answer.status, status, "{lines}");
        if status == 304 {
            assert_eq!((answer.field("etag"), answer.field("cache-control")), (Some(tag.as_str()), Some("no-cache")));
            assert!(answer.body.is_empty() && answer.field("content-type").is_none());
        }
    };
    check(&format!("If-None-Match: {tag}"), 304);
    check(&format!("If-None-Match: W/{tag}"), 304);
    check("If-None-Match: \"other\"", 200);
    check(&format!("If-Modified-Since: {CHANGED}"), 304);
    check(&format!("If-Modified-Since: {before}"), 200);
    check(&format!("If-None-Match: \"other\"\nIf-Modified-Since: {CHANGED}"), 200);
    check(&format!("If-Match: {tag}"), 200);
    check("If-Match: \"other\"", 412);
    check(&format!("If-Unmodified-Since: {before}"), 412);
    check(&format!("If-Unmodified-Since: {CHANGED}"), 200);
    check(&format!("If-None-Match: {tag}\nRange: bytes=0-9"), 304);
    check(&format!("If-Range: {tag}\nRange: bytes=0-9"), 206);
    check(&format!("If-Range: {CHANGED}\nRange: bytes=0-9"), 206);
    check("If-Range: \"other\"\nRange: bytes=0-9", 200);
    check(&format!("If-Range: {before}\nRange: bytes=0-9"), 200);
    check("If-Range: \"other\"\nRange: bytes=5000-", 200);
}

/// A file that changed a moment ago may change again with the same timestamp.
#[test]
fn rfc9110_8_8_1_a_file_that_just_changed_has_a_weak_tag() {
    let tree = Tree::new();
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    fs::write(tree.path().join("new"), "0123456789").unwrap();
    let tag = client.get("/new").field("etag").unwrap().to_owned();
    assert!(tag.starts_with("W/\""), "{tag}");
    assert_eq!(ask(&mut client, "/new", &format!("If-None-Match: {tag}")).status, 304);
    assert_eq!(ask(&mut client, "/new", &format!("If-Range: {tag}\nRange: bytes=0-1")).status, 200);
    ask(&mut client, "/new", "Range: bytes=0-1").is(206, "01");
    tree.write("new", "0123456789");
    assert!(client.get("/new").field("etag").unwrap().starts_with('"'));
}

/// Metadata of a file is cached while the file is open, and no longer used after a change.
#[test]
fn rfc9110_8_what_describes_a_file_changes_with_it() {
    let tree = Tree::new();
    tree.write("page.html", "old");
    tree.write("page.html.gz", "gzip");
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    let mut check = |path: &str, accept: &str, body: &str, tag: &str, modified: &str| {
        for _ in 0..2 {
            let answer = ask(&mut client, path, accept);
            assert_eq!((answer.field("etag"), answer.field("last-modified")), (Some(tag), Some(modified)), "{path}");
            answer.is(200, body);
        }
    };
    check("/page.html", "", "old", "\"ae1b981bc490a01-3\"", CHANGED);
    let gzip = "Accept-Encoding: gzip";
    check("/page.html", gzip, "gzip", "\"ae1b981bc490a01-4-gzip\"", CHANGED);
    check("/page.html.gz", gzip, "gzip", "\"ae1b981bc490a01-4\"", CHANGED);
    check("/page.html", gzip, "gzip", "\"ae1b981bc490a01-4-gzip\"", CHANGED);
    fs::write(tree.path().join("page.html"), "new").unwrap();
    let file = fs::File::options().write(true).open(tree.path().join("page.html")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(784_111_778, 1)).unwrap();
    check("/page.html", "", "new", "\"ae1b981f7e3d401-3\"", "Sun, 06 Nov 1994 08:49:38 GMT");
}

#[test]
fn rfc9110_12_5_3_compressed_siblings() {
    let tree = Tree::new();
    tree.write("app.js", "plain");
    tree.write("app.js.br", "as br");
    tree.write("app.js.gz", "as gzip");
    tree.write("only.css", "plain");
    tree.write("picture.png", "plain");
    tree.write("picture.png.gz", "as gzip");
    tree.write("changed.js.gz", "as gzip");
    fs::write(tree.path().join("changed.js"), "changed since").unwrap();
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    let mut check = |path: &str, accept: &str, body: &str, coding: Option<&str>, varies: bool| {
        let answer = ask(&mut client, path, &format!("Accept-Encoding: {accept}"));
        assert_eq!(answer.field("content-encoding"), coding, "{path} {accept}");
        assert_eq!(answer.field("vary").is_some(), varies, "{path} {accept}");
        answer.is(200, body);
        answer.field("etag").unwrap().to_owned()
    };
    let plain = check("/app.js", "identity", "plain", None, true);
    let br = check("/app.js", "gzip, deflate, br, zstd", "as br", Some("br"), true);
    let gzip = check("/app.js", "gzip", "as gzip", Some("gzip"), true);
    assert!(plain != br && br != gzip && plain != gzip);
    check("/app.js", "br;q=0.5, gzip", "as gzip", Some("gzip"), true);
    check("/app.js", "br;q=0, *", "as gzip", Some("gzip"), true);
    check("/app.js", "zstd", "plain", None, true);
    check("/app.js", "identity, gzip;q=0.9", "plain", None, true);
    check("/app.js", "", "plain", None, true);
    check("/only.css", "br, gzip", "plain", None, true);
    check("/picture.png", "gzip", "plain", None, false);
    check("/changed.js", "gzip", "changed since", None, true);
    let part = ask(&mut client, "/app.js", "Accept-Encoding: br\nRange: bytes=3-");
    assert_eq!((part.field("content-encoding"), part.field("content-range")), (Some("br"), Some("bytes 3-4/5")));
    part.is(206, "br");
    let fresh = ask(&mut client, "/app.js", &format!("Accept-Encoding: br\nIf-None-Match: {br}"));
    assert_eq!((fresh.status, fresh.field("vary")), (304, Some("Accept-Encoding")));
    assert_eq!(ask(&mut client, "/app.js", &format!("Accept-Encoding: gzip\nIf-None-Match: {br}")).status, 200);

    let server = serve(self::tree(&tree).precompressed(false));
    let answer = ask(&mut Client::connect(&server), "/app.js", "Accept-Encoding: br");
    assert_eq!(answer.field("vary"), None);
    answer.is(200, "plain");
}

/// With no spelling of the path is anything outside the directory read. The complete list is in the tests of
/// the handler.
#[test]
fn nothing_outside_is_served() {
    let tree = Tree::new();
    tree.write("secret", "secret");
    tree.write("in/a.txt", "inside");
    tree.write("in/.env", "secret");
    std::os::unix::fs::symlink("../secret", tree.path().join("in/link")).unwrap();
    let server = serve(files(tree.path().join("in")).unwrap());
    let mut client = Client::connect(&server);
    for path in [
        "/../secret", "/%2e%2e/secret", "/..%2fsecret", "/.%2e%2fsecret", "/a.txt/../../secret", "//secret",
        "/%5c..%5csecret", "/..%c0%afsecret", "/%252e%252e/secret", "/.env", "/%2eenv", "/link", "/a.txt%00",
    ] {
        let answer = client.get(path);
        assert!(answer.status == 404 && !answer.text().contains("secret"), "{path}: {answer:?}");
    }
    client.send("GET http://a/../secret HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().status, 404);
    client.get("/a.txt").is(200, "inside");
}

#[test]
fn directories_pages_and_prefixes() {
    let tree = Tree::new();
    tree.write("docs/home.htm", "the index");
    tree.write("plain/a.txt", "text");
    tree.write("app.html", "the page");
    tree.write(".well-known/security.txt", "contact");
    let base = || self::tree(&tree).index("home.htm").under("/static/");
    let server = serve(base());
    let mut client = Client::connect(&server);
    client.get("/static/docs/").is(200, "the index");
    for (from, to) in [("/static", "/static/"), ("/static/docs", "/static/docs/"), ("/static/docs?q", "/static/docs/?q")] {
        let answer = client.get(from);
        assert_eq!((answer.status, answer.field("location")), (301, Some(to)), "{from}");
    }
    client.get("/static/.well-known/security.txt").is(200, "contact");
    for path in ["/docs/", "/staticdocs/", "/static/plain/", "/static/", "/", "/static//docs/"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    client.send("POST /static/docs/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("allow")), (405, Some("GET, HEAD")));

    let server = serve(base().single_page("app.html").cache_control(HeaderValue::from_static("max-age=9")));
    let mut client = Client::connect(&server);
    assert_eq!(client.get("/static/plain/a.txt").field("cache-control"), Some("max-age=9"));
    // The page is also sent without caching at its own address, because it names files that a new version
    // removes.
    for path in ["/static/users/7", "/static/", "/elsewhere", "/static/app.html"] {
        let answer = client.get(path);
        assert_eq!(answer.field("cache-control"), Some("no-cache"), "{path}");
        answer.is(200, "the page");
    }
    assert_eq!(client.get("/static/users/7").field("vary"), Some("Accept-Encoding"));
    // For a path with a dot the Accept field decides, and a cache must know that (RFC 9110 section 12.5.5).
    for accept in ["text/html,*/*;q=0.8", "a/b\r\nAccept: Text/HTML ;q=0.1", "text/html; charset=utf-8; q=1"] {
        let answer = ask(&mut client, "/static/v1.2", &format!("Accept: {accept}"));
        let vary: Vec<_> = answer.fields.iter().filter(|(name, _)| name == "vary").map(|(_, value)| &**value).collect();
        assert_eq!(vary, ["Accept-Encoding", "Accept"], "{accept}");
        answer.is(200, "the page");
    }
    for accept in ["*/*", "text/html;q=0", "text/html;level=1;q=0.0", "text/html5", "x-text/html"] {
        let answer = ask(&mut client, "/static/lost.js", &format!("Accept: {accept}"));
        assert_eq!((answer.status, answer.field("vary")), (404, Some("Accept")), "{accept}");
    }
    client.get("/static/docs/").is(200, "the index");
    assert_eq!(client.get("/static/%").status, 400);
}

#[test]
fn one_file_and_embedded_ones() {
    static SITE: &[(&str, &[u8])] = &[
        ("index.html", b"home"),
        ("js/app.js", b"plain"),
        ("js/app.js.gz", b"as gzip"),
    ];
    let server = serve(embedded(SITE));
    let mut client = Client::connect(&server);
    let home = client.get("/");
    assert_eq!((home.field("last-modified"), home.field("content-type")), (None, Some("text/html; charset=utf-8")));
    home.is(200, "home");
    let tag = home.field("etag").unwrap();
    assert_eq!(ask(&mut client, "/index.html", &format!("If-None-Match: {tag}")).status, 304);
    ask(&mut client, "/js/app.js", "Range: bytes=1-2").is(206, "la");
    ask(&mut client, "/js/app.js", "Accept-Encoding: gzip").is(200, "as gzip");
    assert_eq!(client.get("/js").field("location"), Some("/js/"));
    for path in ["/js/", "/j", "/js/app", "/index.html/", "/other"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }

    let tree = Tree::new();
    let path = tree.write("manual.pdf", noise(50_000));
    let server = serve(file(&path).unwrap());
    let mut client = Client::connect(&server);
    for path in ["/", "/any/path", "/..%2fx"] {
        let answer = client.get(path);
        assert_eq!(answer.field("content-type"), Some("application/pdf"));
        answer.is(200, noise(50_000));
    }
    ask(&mut client, "/", "Range: bytes=10-19").is(206, &noise(50_000)[10..20]);
    fs::remove_file(&path).unwrap();
    assert_eq!(client.get("/").status, 404);
}

/// The length was sent when the file was whole, so the server can only end the connection.
#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    let tree = Tree::new();
    let path = tree.write("a.bin", noise(64 * MIB));
    let server = serve(self::tree(&tree));
    let mut client = Client::connect(&server);
    client.send("GET /a.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_bytes();
    fs::File::options().write(true).open(&path).unwrap().set_len(1).unwrap();
    assert!(client.rest().len() < 64 * MIB);
    Client::connect(&server).get("/a.bin").is(200, noise(1));
}

#[test]
fn slow_downloads_hold_no_thread() {
    if !CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        return;
    }
    const SLOW: usize = 20;
    // More than the kernel buffers for a client that does not read. The file is sparse and takes no space on
    // the disk.
    const LENGTH: usize = 32 * MIB;
    let tree = Tree::new();
    let large = tree.write("large", "");
    fs::File::options().write(true).open(large).unwrap().set_len(LENGTH as u64).unwrap();
    tree.write("small", "quick");
    let server = CASE.bind("127.0.0.1:0").settings(|s| s.threads_max(8)).start(self::tree(&tree)).unwrap();
    let mut slow: Vec<Client> = (0..SLOW).map(|_| Client::connect(&server)).collect();
    for client in &mut slow {
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        client.wait_for_bytes();
    }
    for _ in 0..10 {
        Client::connect(&server).get("/small").is(200, "quick");
    }
    assert!(server.threads() <= 8, "{} threads", server.threads());
    eventually("only they are left", || server.stats().connections == SLOW);
    let body = slow[0].answer().body;
    assert!(body.len() == LENGTH && body.iter().all(|byte| *byte == 0));
}
