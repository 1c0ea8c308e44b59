//! Tests that validators tell two versions of a file apart, that no date is later than the response, and that a
//! replaced directory is served.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

#[cfg(feature = "compression")]
use weftwork::http::StatusCode;
use weftwork::http::{HeaderValue, header};
use weftwork::middleware::{ETags, ResponseCache};
use weftwork::{Handler, HandlerExt, Request, Response, Running, files};

use super::CASE;
#[cfg(feature = "compression")]
use crate::support::CHANGED;
use crate::support::{Answer, Client, Tree, eventually, is_logged, keep_log, logged, noise};

fn start(handler: impl Handler) -> Running {
    CASE.bind("127.0.0.1:0").start(handler).expect("the server starts")
}

#[track_caller]
fn ask(client: &mut Client, path: &str, lines: &str) -> Answer {
    let lines: String = lines.lines().map(|line| format!("{line}\r\n")).collect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    client.answer()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn write_at(path: &Path, bytes: impl AsRef<[u8]>, modified: SystemTime) {
    fs::write(path, bytes).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

/// Seconds since 1970 of a field with a date.
fn seconds(answer: &Answer, name: &str) -> Option<u64> {
    let date = weftwork_wire::fields::date(answer.field(name)?.as_bytes()).unwrap();
    Some(date.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
}

/// The clock of a file or of a handler may be ahead of the text of Date, which is formatted once a second.
#[test]
fn rfc9110_8_8_2_1_no_last_modified_is_later_than_its_date() {
    let tree = Tree::new();
    write_at(&tree.path().join("page"), "page", SystemTime::now() + Duration::from_secs(86_400));
    let dated = |response: Response| {
        response.with_header(header::LAST_MODIFIED, HeaderValue::from_static("Fri, 01 Jan 2100 00:00:00 GMT"))
    };
    let own = move |req: &mut Request| match req.path() {
        "/stream" => dated(Response::stream(|out| out.write_all(b"streamed"))),
        "/later" => {
            let (sender, response) = Response::later(Duration::from_secs(9), "late");
            std::thread::spawn(move || sender.send(dated(Response::text("in time"))));
            response
        }
        _ => dated(Response::text("a page").with_header(header::CACHE_CONTROL, HeaderValue::from_static("max-age=9"))),
    };
    let servers = [
        start(files(tree.path()).unwrap()),
        start(own.with(ETags::new())),
        start(own.with(ResponseCache::new())),
        start(own),
    ];
    for server in &servers {
        let mut client = Client::connect(server);
        for path in ["/page", "/page", "/stream", "/later"] {
            let answer = client.get(path);
            let (modified, date) = (seconds(&answer, "last-modified"), seconds(&answer, "date"));
            assert!(modified <= date && date.is_some(), "{path}: {answer:?}");
            assert_eq!(modified.is_some(), answer.status == 200, "{path}: {answer:?}");
            let Some(tag) = answer.field("etag") else { continue };
            let fresh = ask(&mut client, path, &format!("If-None-Match: {tag}"));
            assert!(fresh.status == 304 && seconds(&fresh, "last-modified") <= seconds(&fresh, "date"), "{fresh:?}");
        }
    }
}

/// Reproducible builds, zip archives and package managers give every file the same time.
#[test]
fn a_time_that_all_versions_share_is_no_validator() {
    const KIB: usize = 1 << 10;
    let tree = Tree::new();
    let server = start(files(tree.path()).unwrap());
    let mut client = Client::connect(&server);
    // 1970, Nix, zip, Gradle, npm, two constants of Bazel, a commit in 2023, and a clock that was wrong.
    let clock = 4_102_444_800;
    for time in
        [0, 1, 315_532_800, 318_211_200, 499_162_500, 946_684_800, 1_262_304_000, 1_700_000_000, clock]
    {
        // The original of a precompressed file. For a second, it is known which of them there are.
        write_at(&tree.path().join("b.js"), "original", at(time));
        write_at(&tree.path().join("b.js.gz"), "", at(time));
        for (name, length) in [("a.js", 100 * KIB), ("b.js.gz", 9), ("long.bin", 1100 * KIB)] {
            let path = tree.path().join(name);
            write_at(&path, vec![b'1'; length], at(time));
            let url = format!("/{}", name.trim_end_matches(".gz"));
            let accept = "Accept-Encoding: gzip";
            let first = ask(&mut client, &url, accept);
            let is_plausible = time == 1_700_000_000;
            let long = length > KIB << 10;
            let modified = seconds(&first, "last-modified");
            assert_eq!(modified.filter(|_| time != clock), Some(time).filter(|_| is_plausible), "{name} of {time}");
            let tag = first.field("etag").unwrap().to_owned();
            assert!(long || tag.starts_with('"'), "{name} of {time}: {tag}");
            assert_eq!(ask(&mut client, &url, &format!("{accept}\nIf-None-Match: {tag}")).status, 304, "{name} of {time}");
            // In place, and by another file that takes its name.
            for (version, is_renamed) in [(b'2', false), (b'3', true)] {
                let new = if is_renamed { tree.path().join("new") } else { path.clone() };
                write_at(&new, vec![version; length], at(time));
                fs::rename(&new, &path).unwrap();
                if long && is_plausible {
                    continue;
                }
                let conditions = format!("{accept}\nIf-None-Match: {tag}");
                ask(&mut client, &url, &conditions).is(200, vec![version; length]);
                if !is_plausible {
                    let conditions = format!("{accept}\nIf-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT");
                    ask(&mut client, &url, &conditions).is(200, vec![version; length]);
                }
            }
        }
    }
}

/// Two machines with the same file have the same tag.
#[test]
fn a_tag_of_content_is_the_same_for_the_same_content() {
    let (here, there) = (Tree::new(), Tree::new());
    write_at(&here.path().join("a.bin"), noise(200_000), at(1));
    write_at(&there.path().join("a.bin"), noise(200_000), at(315_532_800));
    let tags = [&here, &there].map(|tree| {
        let server = start(files(tree.path()).unwrap());
        let mut client = Client::connect(&server);
        let tag = client.get("/a.bin").field("etag").unwrap().to_owned();
        ask(&mut client, "/a.bin", &format!("If-Range: {tag}\nRange: bytes=0-9")).is(206, &noise(200_000)[..10]);
        tag
    });
    assert_eq!(tags[0], tags[1]);
}

/// `brotli -k` and `pigz -k` drop the fraction of a second.
#[test]
fn a_precompressed_file_may_be_a_little_older() {
    keep_log();
    let tree = Tree::new();
    let original = at(1_700_000_010) + Duration::from_millis(999);
    let server = start(files(tree.path()).unwrap());
    let mut client = Client::connect(&server);
    for (older_millis, is_sent) in [(0, true), (1, true), (999, true), (2999, true), (3000, false), (60_000, false)] {
        let name = format!("{}-{older_millis}.css", server.local_addr().unwrap().port());
        write_at(&tree.path().join(&name), "original", original);
        write_at(&tree.path().join(format!("{name}.br")), "br", original - Duration::from_millis(older_millis));
        for _ in 0..3 {
            let answer = ask(&mut client, &format!("/{name}"), "Accept-Encoding: br");
            answer.is(200, if is_sent { "br" } else { "original" });
        }
        let parts = [name.as_str(), "is not sent"];
        if !is_sent {
            is_logged(&[&name, "is not sent", &format!("{} s older", older_millis / 1000)]);
        }
        assert_eq!(logged(&parts).len(), usize::from(!is_sent), "{parts:?}");
    }
}

#[test]
fn a_switched_link_leads_to_the_new_directory() {
    let tree = Tree::new();
    tree.write("1/page", "first");
    tree.write("2/page", "second");
    tree.write("2/new", "new");
    let current = tree.path().join("current");
    let switch = |to: &str| {
        symlink(to, tree.path().join("next")).unwrap();
        fs::rename(tree.path().join("next"), &current).unwrap();
    };
    switch("1");
    let server = start(files(&current).unwrap().listing(true));
    let mut client = Client::connect(&server);
    client.get("/page").is(200, "first");
    assert!(!client.get("/").text().contains("new"));
    switch("2");
    eventually("the new page is sent", || client.get("/page").text() == "second");
    switch("1");
    switch("2");
    // What the old directory does not have is looked up in the new one at once.
    client.get("/new").is(200, "new");
    switch("1");
    assert!(!client.get("/").text().contains("new"));
    client.get("/page").is(200, "first");
}

#[test]
fn a_directory_that_has_gone_is_no_empty_one() {
    keep_log();
    let tree = Tree::new();
    tree.write("dist/page", "first");
    let (dist, aside) = (tree.path().join("dist"), tree.path().join("aside"));
    let server = start(files(&dist).unwrap().listing(true));
    let mut client = Client::connect(&server);
    let is_unavailable = |answer: Answer| {
        assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")), "{answer:?}");
    };
    client.get("/page").is(200, "first");
    fs::remove_dir_all(&dist).unwrap();
    for path in ["/", "/page", "/other"] {
        is_unavailable(client.get(path));
    }
    is_logged(&["cannot serve files from", dist.to_str().unwrap(), "503"]);
    // It is built again.
    tree.write("dist/page", "second");
    client.get("/page").is(200, "second");
    assert!(client.get("/").text().contains("page"));
    // It is moved away, and another one takes its place.
    fs::rename(&dist, &aside).unwrap();
    is_unavailable(client.get("/"));
    eventually("the moved page is not sent", || client.get("/page").status == 503);
    tree.write("dist/page", "third");
    client.get("/page").is(200, "third");
    // A file in its place is no directory.
    fs::remove_dir_all(&dist).unwrap();
    fs::write(&dist, "").unwrap();
    is_unavailable(client.get("/page"));
}

/// A proxy has only what the server behind says about its uncompressed bytes.
#[cfg(feature = "compression")]
#[test]
fn rfc9110_8_6_compression_before_a_proxy_changes_what_describes_the_bytes() {
    use weftwork::middleware::Compression;

    let tree = Tree::new();
    tree.write("page.txt", "a line of text\n".repeat(1000));
    let served = files(tree.path()).unwrap().precompressed(false);
    let behind = start(move |req: &mut Request| match req.header("if-none-match") {
        Some(tag) => Response::new(StatusCode::NOT_MODIFIED)
            .with_header(header::ETAG, HeaderValue::try_from(tag.trim_start_matches("W/")).unwrap())
            .with_header(header::CONTENT_LENGTH, HeaderValue::from_static("15000")),
        None => served.call(req),
    });
    let proxy = start(super::proxy_to_server(&behind).with(Compression::new()));
    let mut client = Client::connect(&proxy);
    for (coding, tag, length) in
        [("gzip", "W/\"1\"", None), ("identity", "\"1\"", Some("15000")), ("gzip", "\"1\"", Some("15000"))]
    {
        let fields = format!("Accept-Encoding: {coding}\r\nIf-None-Match: {tag}\r\n");
        client.send(format!("HEAD /page.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let answer = client.answer_to_head();
        let got = (answer.status, answer.field("etag"), answer.field("content-length"));
        assert_eq!(got, (304, Some(tag), length), "{coding} {tag}");
    }
    for coding in ["gzip", "identity"] {
        let lines = format!("Accept-Encoding: {coding}\nRange: bytes=0-9\nIf-Range: {CHANGED}");
        let answer = ask(&mut client, "/page.txt", &lines);
        let wanted = (200, (coding == "gzip").then_some("gzip"));
        assert_eq!((answer.status, answer.field("content-encoding")), wanted, "{coding}");
    }
    ask(&mut client, "/page.txt", "Accept-Encoding: gzip\nRange: bytes=0-5").is(206, "a line");
}
