//! Tests of what is served from a directory, and of everything that is not.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::beneath::{self, Links};
use super::error::FileError;
use super::listing::{encoded, size};
use super::target::{PathError, Target};
use super::{Files, file, files};
use crate::message::Payload;
use crate::message::testing::{Canned, get};
use crate::{Request, Running, Server};

/// A directory for each test, removed with all its files at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weftwork-files-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("tree/sub/deep")).unwrap();
        Scratch(path)
    }

    fn root(&self) -> PathBuf {
        self.0.join("tree")
    }

    fn write(&self, name: impl AsRef<Path>, text: &str) -> PathBuf {
        let path = self.root().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn site(&self) -> Site {
        Site::of(files(self.root()).unwrap().listing(true))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

struct Site(Running);

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Site {
    fn of(files: Files) -> Site {
        Site(Server::bind("127.0.0.1:0").unwrap().start(files).unwrap())
    }

    /// `request` is the request line without the version, and further lines with fields.
    fn ask(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.0.local_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
        let fields: String = fields.lines().map(|field| format!("{field}\r\n")).collect();
        write!(stream, "{line} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    #[track_caller]
    fn check(&self, path: &str, status: u16) -> Answer {
        let answer = self.ask(&format!("GET {path}"));
        assert_eq!(answer.status, status, "{path}: {} {}", answer.head, answer.body);
        answer
    }
}

#[test]
fn a_directory_is_needed() {
    let scratch = Scratch::new();
    let path = scratch.write("file", "");
    for (path, why) in [(scratch.0.join("missing"), "No such file"), (path, "Not a directory")] {
        let error = files(&path).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains(why), "{error}");
    }
    files(scratch.root()).unwrap();
    for (path, why) in [(scratch.0.join("missing"), "No such file"), (scratch.root(), "Is a directory")] {
        let error = file(&path).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains(why), "{error}");
    }
    assert!(file("/dev/null").is_err() && file("..").is_err() && file("").is_err());
    file(scratch.root().join("../tree/file")).unwrap();
}

#[test]
fn a_single_file_mount_serves_no_other_file() {
    let scratch = Scratch::new();
    scratch.write("secret", "secret");
    let one = file(scratch.write("file", "hello")).unwrap();
    for (name, status) in [("file", 200), ("secret", 404), ("sub/deep", 404)] {
        let answer = one.send(&Canned::asking("GET", "/", &[]).request(0), name);
        assert_eq!(answer.status().as_u16(), status, "{name}");
    }
}

/// A file that was not written just now.
#[test]
fn a_file_that_is_asked_for_again_is_sent_from_memory() {
    let served = files(env!("CARGO_MANIFEST_DIR")).unwrap();
    let in_memory = |method| {
        let answer = served.send(&Canned::asking(method, "/", &[]).request(0), "Cargo.toml");
        match answer.payload {
            Payload::File { read, count, .. } => read.is_some_and(|bytes| bytes.len() as u64 == count),
            _ => panic!("a file is sent"),
        }
    };
    assert!(!in_memory("GET"), "most are asked for once");
    // The file may have been closed again if this thread had to wait.
    assert!((0..100).any(|_| in_memory("GET")));
    assert!(!(0..2).any(|_| in_memory("HEAD")));
}

#[test]
fn a_file_that_is_asked_for_again_is_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (site, text) = (Site::of(files(root).unwrap()), fs::read_to_string(root.join("Cargo.toml")).unwrap());
    for (method, fields, status, body) in
        [("GET", "", 200, &text[..]), ("GET", "Range: bytes=3-12", 206, &text[3..13]), ("HEAD", "", 200, "")]
    {
        let [first, second, third] =
            std::array::from_fn(|_| site.ask(&format!("{method} /Cargo.toml\n{fields}")));
        assert_eq!(first.status, status, "{method} {fields}");
        for other in [second, third] {
            assert_eq!(other.status, status, "{method} {fields}");
            for name in ["content-length", "content-range", "etag", "last-modified", "accept-ranges"] {
                assert_eq!(other.field(name), first.field(name), "{method} {fields}: {name}");
            }
            assert_eq!((&*first.body, &*other.body), (body, body), "{method} {fields}");
        }
    }
}

#[test]
fn files_are_sent_with_their_type() {
    let scratch = Scratch::new();
    scratch.write("a b.txt", "hello");
    scratch.write("sub/deep/page.HTML", "<p>");
    scratch.write("empty", "");
    scratch.write("100%.txt", "percent");
    fs::write(scratch.root().join(std::ffi::OsStr::from_bytes(b"\xff\xfe.txt")), "bytes").unwrap();
    let site = scratch.site();

    let answer = site.check("/a%20b.txt", 200);
    assert_eq!(answer.body, "hello");
    assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.field("content-length"), Some("5"));
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(site.check("/a%20b.txt?query=1", 200).body, "hello");
    let answer = site.check("/sub/deep/page.HTML", 200);
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    let answer = site.check("/empty", 200);
    assert_eq!(answer.field("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.body, "");
    assert_eq!(site.check("/100%25.txt", 200).body, "percent");
    assert_eq!(site.check("/%ff%FE.txt", 200).body, "bytes");
    site.check("/a%20b.txt/", 404);
    site.check("/missing", 404);
    site.check("/empty/below", 404);
}

#[test]
fn methods() {
    let scratch = Scratch::new();
    scratch.write("file.txt", "hello");
    let site = scratch.site();
    let head = site.ask("HEAD /file.txt");
    assert_eq!((head.status, head.field("content-length"), head.body.as_str()), (200, Some("5"), ""));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
        let answer = site.ask(&format!("{method} /file.txt"));
        assert_eq!((answer.status, answer.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
}

#[test]
fn nothing_outside_is_served() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("x"), "secret").unwrap();
    fs::write(scratch.0.join("secret.txt"), "secret").unwrap();
    scratch.write(".hidden", "secret");
    scratch.write("inside.txt", "inside");
    fs::create_dir(scratch.root().join(".git")).unwrap();
    scratch.write(".git/config", "secret");
    symlink(scratch.0.join("x"), scratch.root().join("link")).unwrap();
    symlink("../x", scratch.root().join("relative")).unwrap();
    symlink("inside.txt", scratch.root().join("inner")).unwrap();
    symlink(&scratch.0, scratch.root().join("up")).unwrap();
    symlink("sub", scratch.root().join("alias")).unwrap();
    symlink(scratch.0.join("x"), scratch.root().join("sub/index.html")).unwrap();
    let site = scratch.site();

    let paths = [
        "/../x",
        "/%2e%2e/x",
        "/%2E%2E/x",
        "/.%2e/x",
        "/..%2fx",
        "/..%2Fx",
        "/sub/../../x",
        "/sub/..%2f..%2fx",
        "/%2e%2e%2fx",
        "/..%5cx",
        "/%5c..%5cx",
        "//x",
        "//etc/passwd",
        "/sub//deep",
        "/./inside.txt",
        "/sub/./deep/",
        "/%00",
        "/inside.txt%00",
        "/inside.txt%00.html",
        "/%252e%252e/x",
        "/..%c0%afx",
        "/%c0%ae%c0%ae/x",
        "/.hidden",
        "/%2ehidden",
        "/.git/config",
        "/.git/",
        "/.git",
        "/link",
        "/relative",
        "/inner",
        "/up/x",
        "/up/",
        "/up",
        "/alias/",
        "/alias/deep/",
        "/sub/index.html",
        "/..",
        "/../",
        "/.",
        "/...",
    ];
    for path in paths {
        let answer = site.check(path, 404);
        assert!(!answer.body.contains("secret"), "{path}");
    }
    for path in ["/\\..\\x", "/sub\\..\\..\\x"] {
        let answer = site.ask(&format!("GET {path}"));
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.head);
    }
    for path in ["/%", "/%2", "/%zz", "/inside.txt%", "/%+1"] {
        site.check(path, 400);
    }
    // A symbolic link in place of the index is not followed either: the directory is listed.
    let listed = site.check("/sub/", 200);
    assert!(listed.body.contains("deep/") && !listed.body.contains("index.html"), "{}", listed.body);
}

#[test]
fn the_portable_walk_refuses_the_same() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("x"), "secret").unwrap();
    scratch.write("sub/file", "");
    symlink(&scratch.0, scratch.root().join("up")).unwrap();
    symlink("sub", scratch.root().join("alias")).unwrap();
    symlink("../x", scratch.root().join("link")).unwrap();
    let root = fs::File::open(scratch.root()).unwrap();
    let check = |path: &str, want: &[Option<Errno>]| {
        let walked = beneath::walk(&root, path.as_bytes(), Links::Refuse).err();
        assert!(want.contains(&walked), "walk {path:?}: {walked:?}");
        let opened = beneath::open(&root, path.as_bytes(), Links::Refuse).err();
        assert_eq!(opened.is_none(), walked.is_none(), "open {path:?}: {opened:?}");
    };
    check("", &[None]);
    check("sub", &[None]);
    check("sub/deep", &[None]);
    check("sub/file", &[None]);
    check("missing", &[Some(Errno::NOENT)]);
    check("missing/file", &[Some(Errno::NOENT)]);
    check("sub/file/below", &[Some(Errno::NOTDIR)]);
    // The error for a symbolic link differs between systems, and with DIRECTORY.
    check("link", &[Some(Errno::LOOP), Some(Errno::MLINK)]);
    check("up/x", &[Some(Errno::LOOP), Some(Errno::NOTDIR)]);
    check("alias/file", &[Some(Errno::LOOP), Some(Errno::NOTDIR)]);
    check("..", &[Some(Errno::XDEV)]);
    check("../x", &[Some(Errno::XDEV)]);
    check("sub/../../x", &[Some(Errno::XDEV)]);
    check("/etc/passwd", &[Some(Errno::NOENT), Some(Errno::XDEV)]);
}

#[test]
fn links_are_followed_only_within_the_root() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("x"), "secret").unwrap();
    scratch.write("file", "inside");
    scratch.write("sub/deep/file", "inside");
    for (target, link) in [
        ("file", "alias"),
        ("sub/deep", "short"),
        ("alias", "twice"),
        ("../file", "sub/back"),
        ("deep/../../file", "sub/around"),
        ("./short//file", "through"),
        ("../x", "out"),
        ("../../x", "sub/out"),
        ("..", "up"),
        ("sub/../../tree/file", "out-and-in"),
        ("round", "round"),
        ("missing", "broken"),
    ] {
        symlink(target, scratch.root().join(link)).unwrap();
    }
    symlink(scratch.root().join("file"), scratch.root().join("absolute")).unwrap();
    let root = fs::File::open(scratch.root()).unwrap();
    let read = |fd: rustix::io::Result<std::os::fd::OwnedFd>| {
        let mut text = String::new();
        fd.map(|fd| fs::File::from(fd).read_to_string(&mut text).map(|_| text).unwrap())
    };
    let check = |path: &str, want: Result<&str, Errno>| {
        let want = want.map(str::to_owned);
        assert_eq!(read(beneath::walk(&root, path.as_bytes(), Links::Follow)), want, "walk {path:?}");
        assert_eq!(read(beneath::open(&root, path.as_bytes(), Links::Follow)), want, "open {path:?}");
        if want.is_err() {
            return;
        }
        for refused in [beneath::walk, beneath::open] {
            let error = refused(&root, path.as_bytes(), Links::Refuse).unwrap_err();
            assert!(matches!(error, Errno::LOOP | Errno::MLINK | Errno::NOTDIR), "{path}: {error}");
        }
    };
    for path in ["alias", "short/file", "twice", "sub/back", "sub/around", "through"] {
        check(path, Ok("inside"));
    }
    for path in ["out", "sub/out", "up/x", "up/tree/file", "out-and-in", "absolute"] {
        check(path, Err(Errno::XDEV));
    }
    check("round", Err(Errno::LOOP));
    check("broken", Err(Errno::NOENT));
    check("alias/below", Err(Errno::NOTDIR));

    let site = Site::of(files(scratch.root()).unwrap().listing(true).symlinks(true));
    assert_eq!(site.check("/short/file", 200).body, "inside");
    assert_eq!(site.check("/short", 301).field("location"), Some("/short/"));
    for path in ["/out", "/up/x", "/absolute", "/round", "/broken"] {
        site.check(path, 404);
    }
    let listed = site.check("/", 200).body;
    assert!(listed.contains("alias") && listed.contains("short/"), "{listed}");
    for link in ["out", "up", "absolute", "round", "broken"] {
        assert!(!listed.contains(&format!("\"{link}")), "{link} is in {listed}");
    }
}

#[test]
fn only_regular_files_are_sent() {
    let scratch = Scratch::new();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.root().join("socket")).unwrap();
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, scratch.root().join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    let site = scratch.site();
    site.check("/socket", 404);
    site.check("/pipe", 404);
    let listed = site.check("/", 200);
    assert!(!listed.body.contains("socket") && !listed.body.contains("pipe"), "{}", listed.body);
    Site::of(files("/dev").unwrap()).check("/null", 404);
}

#[test]
fn a_directory_has_a_slash_and_an_index() {
    let scratch = Scratch::new();
    scratch.write("index.html", "home");
    fs::create_dir(scratch.root().join("a b")).unwrap();
    let site = scratch.site();
    let home = site.check("/", 200);
    assert_eq!((home.body.as_str(), home.field("content-type")), ("home", Some("text/html; charset=utf-8")));
    assert_eq!(site.check("/sub", 301).field("location"), Some("/sub/"));
    assert_eq!(site.check("/sub/deep?a=b&c", 301).field("location"), Some("/sub/deep/?a=b&c"));
    assert_eq!(site.check("/a%20b", 301).field("location"), Some("/a%20b/"));
    assert_eq!(site.check("/index.html", 200).body, "home");
}

#[test]
fn a_directory_without_an_index_is_listed() {
    let scratch = Scratch::new();
    scratch.write("sub/z<b>&\"'.txt", "four");
    scratch.write("sub/.hidden", "");
    fs::write(scratch.root().join(std::ffi::OsStr::from_bytes(b"sub/\xff")), "").unwrap();
    let site = scratch.site();
    let page = site.check("/sub/", 200);
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    let body = page.body;
    for part in [
        "<title>/sub/</title>",
        "<a href=\"../\">",
        "<a href=\"deep/\">deep/</a>",
        "<a href=\"z%3Cb%3E%26%22%27.txt\">z&lt;b&gt;&amp;&quot;&#39;.txt</a><td>4 B",
        "<a href=\"%FF\">\u{fffd}</a>",
    ] {
        assert!(body.contains(part), "{part} is not in {body}");
    }
    assert!(!body.contains("hidden") && body.find("deep/") < body.find("z%3C"), "{body}");
    assert!(!site.check("/", 200).body.contains("../"), "the root has no parent");
}

#[test]
fn a_listing_is_sorted_and_filtered_by_its_query() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.root().join("l/dir/deep")).unwrap();
    for (name, text, seconds) in [("l/Alpha", "333", 100), ("l/beta", "1", 86_400), ("l/gamma", "22", 9)] {
        let file = fs::File::options().write(true).open(scratch.write(name, text)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    let site = scratch.site();
    let listed = |query: &str| {
        let body = site.check(&format!("/l/{query}"), 200).body;
        let rows = body.lines().filter_map(|line| line.strip_prefix("<tr><td><a href=\""));
        rows.map(|row| row.split('"').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    for (query, names) in [
        ("", "dir/ Alpha beta gamma"),
        ("?sort=name&order=desc", "dir/ gamma beta Alpha"),
        ("?sort=size", "dir/ beta gamma Alpha"),
        ("?sort=date&order=desc", "dir/ beta Alpha gamma"),
        ("?filter=ALPH", "Alpha"),
        ("?sort=size&filter=a", "beta gamma Alpha"),
        ("?filter=none", ""),
        ("?sort=unknown", "dir/ Alpha beta gamma"),
    ] {
        assert_eq!(listed(query), names, "{query}");
    }
    let body = site.check("/l/?filter=%3Cb%22&sort=size", 200).body;
    for part in
        ["value=\"&lt;b&quot;\"", "?sort=size&amp;order=desc&amp;filter=%3Cb%22\">size", "No names to list."]
    {
        assert!(body.contains(part), "{part} is not in {body}");
    }
    assert!(site.check("/l/", 200).body.contains("beta</a><td>1 B<td>02 Jan 1970 00:00\n"));
    let deep = site.check("/l/dir/deep/", 200).body;
    assert!(
        deep.contains("<a href=\"../../../\">/</a> <a href=\"../../\">l/</a> <a href=\"../\">dir/</a> deep/")
    );
}

/// All that can be sent is listed, and each link leads to its file.
#[test]
fn every_name_that_a_file_may_have_is_listed_and_found() {
    let scratch = Scratch::new();
    let names: [&[u8]; 11] = [
        b"a\\b",
        b"\\",
        b"\\a\\",
        b"a b",
        b"a\tb",
        b"a\nb",
        b"a:b",
        b"?#%",
        b"%2e",
        b"\xff\xfe",
        b"...\xc3\xbc",
    ];
    for name in names {
        fs::write(scratch.root().join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let site = Site::of(files(scratch.root()).unwrap().listing(true).hidden(true));
    let page = site.check("/", 200).body;
    for name in names {
        let link = encoded(name);
        assert!(page.contains(&format!("<a href=\"{link}\">")), "{link} is not in {page}");
        let found = site.check(&format!("/{link}"), 200);
        assert_eq!(found.body, String::from_utf8_lossy(name), "{link}");
    }
}

/// Names as an uploading client chooses them: a byte of a name is eight of the page.
#[test]
fn a_listing_with_long_names_has_a_bounded_size() {
    let scratch = Scratch::new();
    for number in 0..1100 {
        scratch.write(format!("sub/{}{number}", "'".repeat(250)), "");
    }
    let body = scratch.site().check("/sub/", 200).body;
    assert!(body.len() < (2 << 20) + (8 << 10), "{} bytes", body.len());
    assert!(body.ends_with("<p>The list is incomplete.\n"));
}

#[test]
fn if_modified_since() {
    let scratch = Scratch::new();
    let path = scratch.write("file.txt", "hello");
    let file = fs::File::options().write(true).open(path).unwrap();
    let noon = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_900);
    file.set_modified(noon).unwrap();
    let site = scratch.site();
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let check = |fields: &str, status: u16| {
        let answer = site.ask(&format!("GET /file.txt\n{fields}"));
        assert_eq!((answer.status, answer.field("last-modified")), (status, Some(date)), "{fields}");
        assert_eq!(answer.body.is_empty(), status == 304, "{fields}");
    };
    check("", 200);
    check(&format!("If-Modified-Since: {date}"), 304);
    check("If-Modified-Since: Sun, 06 Nov 1994 08:49:38 GMT", 304);
    check("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT", 304);
    check("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT", 200);
    check("If-Modified-Since: yesterday", 200);
    check(&format!("If-Modified-Since: {date}\nIf-None-Match: \"tag\""), 200);

    // A date that no file has by itself, and a date in the future.
    file.set_modified(SystemTime::UNIX_EPOCH - Duration::from_secs(9)).unwrap();
    assert_eq!(site.check("/file.txt", 200).field("last-modified"), None);
    file.set_modified(SystemTime::now() + Duration::from_secs(86_400)).unwrap();
    let answer = site.check("/file.txt", 200);
    assert!(answer.field("last-modified") <= answer.field("date"), "{}", answer.head);
}

/// RFC 9110 section 8.8.1: a date that the compressed sibling shares does not say from which of the two a
/// client has a part.
#[test]
fn a_date_joins_no_parts_of_different_codings() {
    let scratch = Scratch::new();
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    for name in ["page.html", "page.html.gz", "film.mp4"] {
        let path = scratch.write(name, &format!("0123456789 {name}"));
        fs::File::options().write(true).open(path).unwrap().set_modified(noon).unwrap();
    }
    let site = scratch.site();
    let check = |path: &str, coding: &str, state: &str, body: &str| {
        let request = format!("GET {path}\nAccept-Encoding: {coding}\nRange: bytes=0-3\nIf-Range: {state}");
        let answer = site.ask(&request);
        let wanted = if body == "0123" { 206 } else { 200 };
        assert_eq!((answer.status, &*answer.body), (wanted, body), "{path} {coding} {state}");
        answer.field("etag").unwrap().to_owned()
    };
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let plain = check("/page.html", "identity", date, "0123456789 page.html");
    let coded = check("/page.html", "gzip", date, "0123456789 page.html.gz");
    check("/page.html", "identity", &plain, "0123");
    check("/page.html", "identity", &coded, "0123456789 page.html");
    check("/page.html", "gzip", &coded, "0123");
    check("/film.mp4", "gzip", date, "0123");
    for (path, status) in [("/page.html", 200), ("/film.mp4", 206)] {
        let answer = site.ask(&format!("GET {path}\nRange: bytes=0-3\nIf-Unmodified-Since: {date}"));
        assert_eq!(answer.status, status, "{path}");
    }
}

/// A compressor without room on its disk leaves an empty file.
#[test]
fn an_empty_precompressed_file_is_not_sent() {
    let scratch = Scratch::new();
    for name in ["page.html", "whole.html", "whole.html.gz"] {
        scratch.write(name, name);
    }
    for name in ["page.html.br", "page.html.zst", "page.html.gz", "whole.html.br"] {
        scratch.write(name, "");
    }
    let site = scratch.site();
    for (path, body, coding) in
        [("/page.html", "page.html", None), ("/whole.html", "whole.html.gz", Some("gzip"))]
    {
        let answer = site.ask(&format!("GET {path}\nAccept-Encoding: br, zstd, gzip"));
        assert_eq!((answer.status, &*answer.body, answer.field("content-encoding")), (200, body, coding));
    }
}

/// Clients that wait for many files hold their descriptors.
#[test]
fn without_free_descriptors_a_request_gets_503_with_retry_after() {
    for error in [Errno::MFILE, Errno::NFILE] {
        let answer = get("/a", &move |req: &mut Request<'_>| FileError::from(error).respond(req));
        assert_eq!((answer.status().as_u16(), answer.header("retry-after")), (503, Some("1")));
    }
}

#[test]
fn targets() {
    let check = |path: &str, want: Result<(&[u8], bool), PathError>| {
        let got = Target::parse(path.as_bytes(), false);
        let want = want.map(|(path, slash)| Target { path: path.into(), slash, is_non_canonical: false });
        assert_eq!(got, want, "{path:?}");
    };
    check("/", Ok((b"", true)));
    check("/a", Ok((b"a", false)));
    check("/a/", Ok((b"a", true)));
    check("/a/b%20c", Ok((b"a/b c", false)));
    check("/A%ff", Ok((b"A\xff", false)));
    let is_non_canonical = |path: &[u8]| Target::parse(path, false).unwrap().is_non_canonical;
    assert!(is_non_canonical(b"/%41%ff") && is_non_canonical(b"/a/%2Dx/") && !is_non_canonical(b"/%ff%2B"));
    check("/a\\b%5C", Ok((b"a\\b\\", false)));
    check("/a+b", Ok((b"a+b", false)));
    check("/a%252e", Ok((b"a%2e", false)));
    for path in [
        "",
        "*",
        "a",
        "//",
        "///",
        "/a//",
        "//a",
        "/a%2fb",
        "/a%5C..%5Cb",
        "/..%5Cb",
        "/a\\.b",
        "/%00",
        "/..",
        "/.a",
        "/a/.b/c",
    ] {
        check(path, Err(PathError::Unreachable));
    }
    for path in ["/%", "/%4", "/%g0", "/%0g", "/a/%/b", "/%\u{e9}1"] {
        check(path, Err(PathError::Malformed));
    }
    check("/.well-known/acme", Ok((b".well-known/acme", false)));
    let hidden =
        |path: &str, found: bool| assert_eq!(Target::parse(path.as_bytes(), true).is_ok(), found, "{path}");
    hidden("/.a", true);
    hidden("/...", true);
    hidden("/a\\.b", true);
    for path in ["/.", "/..", "/%2e%2e", "/a/../b", "//a", "/a\\..", "/..\\b", "/%00"] {
        hidden(path, false);
    }
    let named = |name: &str, found: bool| assert_eq!(Target::named(name, false).is_ok(), found, "{name}");
    named("a/b c.txt", true);
    named("100%", true);
    named("a\\b", true);
    for name in ["", "/a", "a/", "../a", "a//b", ".a", "a\0", "a\\..\\b"] {
        named(name, false);
    }
}

#[test]
fn names_and_sizes() {
    assert_eq!(encoded(b"a:b c/\xff~"), "a%3Ab%20c%2F%FF~");
    for (bytes, want) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (u64::MAX, "15.9 EiB"),
    ] {
        assert_eq!(size(bytes), want);
    }
}
