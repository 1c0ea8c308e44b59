//! Tests of the demo's page in chromium, driven over the DevTools protocol.
//!
//! The tests need chromium, and so have a feature: `cargo test -p weftwork-cli --features browser --test browser`, as
//! in `.ci/run`. `WEFT_CHROMIUM` names another binary.

#[path = "weft/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "weft/process.rs"]
#[allow(dead_code)]
mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::process::Weft;

/// Time for the browser to answer. On a busy machine it needs long.
const TIMEOUT: Duration = Duration::from_secs(60);
const RESULTS: [&str; 4] = ["ws-result", "events-result", "upload-result", "download-result"];

/// Ends the browser when the test ends.
struct Browser {
    process: Child,
    port: u16,
    _profile: Profile,
}

struct Profile(std::path::PathBuf);

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Browser {
    /// Starts it with these arguments besides.
    fn start(more: &[&str]) -> Browser {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let chromium = std::env::var_os("WEFT_CHROMIUM").unwrap_or_else(|| "chromium".into());
        let profile = std::env::temp_dir().join(format!(
            "weft-browser-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        let mut process = Command::new(&chromium)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--remote-debugging-port=0", "--window-size=1000,1600", "about:blank"])
            .args(more)
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", chromium.display()));
        let profile = Profile(profile);
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "chromium ended before it listened");
            if let Some((_, address)) = line.split_once("DevTools listening on ws://127.0.0.1:") {
                break address.split('/').next().unwrap().parse().unwrap();
            }
        };
        // The browser writes more lines. A thread reads them, so that the browser never blocks.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Browser { process, port, _profile: profile }
    }

    /// Returns the open pages.
    fn list(&self) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", self.port);
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the browser ends the connection");
            if line == "\r\n" {
                break;
            }
            if let Some((_, value)) = line.split_once(':').filter(|(name, _)| *name == "Content-Length") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// The page that the browser shows.
    fn page(&self) -> Page {
        let until = Instant::now() + TIMEOUT;
        loop {
            let list = self.list();
            let page = list.as_array().unwrap().iter().find(|target| target["type"] == "page");
            if let Some(url) = page.and_then(|page| page["webSocketDebuggerUrl"].as_str()) {
                let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                let (socket, _) = tungstenite::client(url, stream).unwrap();
                return Page { socket, last_id: 0 };
            }
            assert!(Instant::now() < until, "no page: {list}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

struct Page {
    socket: WebSocket<TcpStream>,
    last_id: u64,
}

impl Page {
    /// Sends a command to the browser and returns the answer.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let question = json!({ "id": self.last_id, "method": method, "params": params });
        self.socket.send(Message::text(question.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Evaluates an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let answer = self.ask("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        answer["result"]["value"].clone()
    }

    fn text(&mut self, id: &str) -> String {
        let found = self.value(&format!("document.getElementById('{id}')?.textContent"));
        found.as_str().unwrap_or_default().to_owned()
    }

    fn screenshot(&mut self, name: &str) {
        let shot =
            self.ask("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let png = decode(shot["data"].as_str().unwrap());
        assert!(png.starts_with(b"\x89PNG"));
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, png).unwrap();
        println!("screenshot: {}", path.display());
    }
}

/// Decodes Base64 (RFC 4648).
fn decode(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{} is not Base64", char::from(other)),
    };
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let word = group.iter().fold(0_u32, |word, &byte| word << 6 | u32::from(digit(byte)));
        let word = word << (6 * (4 - group.len()));
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[test]
fn the_page_works_in_a_browser() {
    let weft = Weft::start("demo --port 0");
    page_works(&Browser::start(&[]), &format!("http://{}/", weft.address()), "demo.png");
}

/// With TLS, the browser speaks HTTP/2, and its WebSockets are streams of the same connection (RFC 8441).
#[test]
fn the_page_works_over_http2() {
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-http2.log");
    let _ = std::fs::remove_file(&log);
    let line = format!("demo --port 0 --tls-self-signed --access-log {}", log.display());
    let weft = Weft::start(&line);
    let browser = Browser::start(&["--ignore-certificate-errors"]);
    let url = weft.lines.iter().find_map(|line| line.strip_prefix("listening at ")).expect("an address");
    page_works(&browser, url, "demo-http2.png");
    drop((browser, weft));
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"GET /ws/echo HTTP/2.0\" 200"), "{log}");
    assert!(!log.contains("HTTP/1.1"), "{log}");
}

/// Expects that all parts of the page work, and keeps a picture of it.
fn page_works(browser: &Browser, url: &str, picture: &str) {
    let mut page = browser.page();
    page.ask("Page.enable", json!({}));
    page.ask("Page.navigate", json!({ "url": url }));
    let until = Instant::now() + TIMEOUT;
    let mut waiting = RESULTS.to_vec();
    while !waiting.is_empty() {
        waiting.retain(|id| match page.text(id).as_str() {
            "ok" => false,
            text => {
                assert!(!text.starts_with("failed"), "{id}: {text}");
                assert!(Instant::now() < until, "{id} is still {text:?}");
                true
            }
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    page.screenshot(picture);
    // A message is typed and sent, as a user does it.
    page.value("{ const form = document.getElementById('ws-form'); form.text.value = 'typed'; form.requestSubmit() }");
    while page.text("ws-echo") != "typed" {
        assert!(Instant::now() < until, "the typed message does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
}
