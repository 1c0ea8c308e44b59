//! A browser that a test drives over the DevTools protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// Time for the browser to answer. On a busy machine it needs long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Ends the browser when the test ends.
pub(crate) struct Browser {
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
    pub(crate) fn start(more: &[&str]) -> Browser {
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
    pub(crate) fn page(&self) -> Page {
        let until = Instant::now() + TIMEOUT;
        loop {
            let list = self.list();
            let page = list.as_array().unwrap().iter().find(|target| target["type"] == "page");
            if let Some(url) = page.and_then(|page| page["webSocketDebuggerUrl"].as_str()) {
                let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                let (socket, _) = tungstenite::client(url, stream).unwrap();
                return Page { socket, last_id: 0, errors: Vec::new() };
            }
            assert!(Instant::now() < until, "no page: {list}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) struct Page {
    socket: WebSocket<TcpStream>,
    last_id: u64,
    /// Errors on the console, with those of the network and of the policy.
    pub(crate) errors: Vec<String>,
}

impl Page {
    /// Sends a command to the browser and returns the answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let question = json!({ "id": self.last_id, "method": method, "params": params });
        self.socket.send(Message::text(question.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            let is_error = match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Runtime.consoleAPICalled") => answer["params"]["type"] == "error",
                Some("Log.entryAdded") => answer["params"]["entry"]["level"] == "error",
                _ => false,
            };
            if is_error {
                self.errors.push(answer["params"].to_string());
            }
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Evaluates an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let answer = self.ask("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, id: &str) -> String {
        let found = self.value(&format!("document.getElementById('{id}')?.textContent"));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression has a value that is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let until = Instant::now() + TIMEOUT;
        while self.value(&format!("Boolean({expression})")) != true {
            assert!(Instant::now() < until, "{expression} does not become true: {:?}", self.errors);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens a page and waits until its scripts have run. Errors are collected from now on.
    pub(crate) fn open(&mut self, url: &str) {
        for domain in ["Page", "Runtime", "Log"] {
            self.ask(&format!("{domain}.enable"), json!({}));
        }
        self.ask("Page.navigate", json!({ "url": url }));
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Shows the page at this width, in `light` or `dark`.
    pub(crate) fn look(&mut self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.ask("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Keeps a picture of the whole page.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let size = self.ask("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let params = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.ask("Page.captureScreenshot", params);
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
