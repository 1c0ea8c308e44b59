//! Tests of the demo's pages in chromium. They keep screenshots in the folder `tmp` of the target directory.
//!
//! The tests need chromium, and so have a feature: `cargo test -p weftwork-cli --features browser --test browser`, as
//! in `.ci/run`. `WEFT_CHROMIUM` names another binary.

#[path = "../weft/client.rs"]
#[allow(dead_code)]
mod client;
mod devtools;
#[path = "../weft/process.rs"]
#[allow(dead_code)]
mod process;

use crate::devtools::{Browser, Page};
use crate::process::Weft;

#[test]
fn the_page_works_in_a_browser() {
    let weft = Weft::start("demo --port 0");
    let browser = Browser::start(&[]);
    let mut page = browser.page();
    page.open(&format!("http://{}/", weft.address()));
    routes_work(&mut page);
    page.wait_for("document.querySelector('[data-value=p99]').textContent.endsWith('s')");
    looks_good(&mut page, "demo");
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
    let mut page = browser.page();
    page.open(url);
    routes_work(&mut page);
    assert_eq!(page.errors, [""; 0]);
    drop((browser, weft));
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"GET /ws/echo HTTP/2.0\" 200"), "{log}");
    assert!(!log.contains("HTTP/1.1"), "{log}");
}

/// The button starts a run, and the page draws it. A page that opens later has the whole run.
#[test]
fn eight_handlers_block() {
    let weft = Weft::start("demo --port 0");
    let browser = Browser::start(&[]);
    let mut page = browser.page();
    let url = format!("http://{}/", weft.address());
    page.open(&url);
    page.wait_for("run && !document.getElementById('block-start').disabled");
    page.value("document.getElementById('block-start').click()");
    page.wait_for("run.samples.length > 20");
    assert_eq!(page.value("document.getElementById('block-start').disabled"), true);
    page.wait_for("run.results");
    assert_eq!(page.text("block-state"), "done");
    let result = |page: &mut Page, of: &str| page.value(&format!("run.results{of}")).as_u64().unwrap();
    let answered = [result(&mut page, "[0].answered"), result(&mut page, "[1].answered")];
    assert!(answered[0] > answered[1], "{answered:?} quick requests");
    let slowest = [result(&mut page, "[0].slowest"), result(&mut page, "[1].slowest")];
    assert!(slowest[0] < slowest[1] && slowest[1] > 1_000_000, "{slowest:?} us");
    page.open(&url);
    page.wait_for("run?.results");
    looks_good(&mut page, "demo-block");
}

/// The side listener of every command has the charts.
#[test]
fn the_side_listener_has_a_dashboard() {
    let weft = Weft::start("demo --port 0 --admin 127.0.0.1:0");
    let admin = weft.lines.iter().find_map(|line| line.strip_prefix("probes and metrics at ")).unwrap();
    let browser = Browser::start(&[]);
    let mut page = browser.page();
    page.open(&format!("{admin}dashboard"));
    page.wait_for("document.querySelector('.state')?.textContent.startsWith('live')");
    for _ in 0..100 {
        assert_eq!(weft.connect().ask("GET /json").status, 200);
    }
    page.wait_for("['–', '0'].indexOf(document.querySelector('[data-value=threads]').textContent) < 0");
    looks_good(&mut page, "dashboard");
}

/// The list of a directory, and the page for a file that is missing.
#[test]
fn files_are_listed() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-listing");
    std::fs::create_dir_all(folder.join("a directory")).unwrap();
    std::fs::write(folder.join(format!("a {}name.txt", "very long ".repeat(8))), "hello").unwrap();
    std::fs::write(folder.join("zeros.bin"), [0; 300_000]).unwrap();
    let mut command = process::command("serve --port 0", &[]);
    command.arg(&folder);
    let weft = Weft::start_command(command);
    let browser = Browser::start(&[]);
    let mut page = browser.page();
    let url = format!("http://{}/", weft.address());
    page.open(&url);
    page.value("document.querySelector('input').value = 'ZERO'; document.forms[0].requestSubmit()");
    page.wait_for("location.search === '?filter=ZERO' && document.querySelectorAll('td a').length === 1");
    page.open(&url);
    page.wait_for("document.querySelectorAll('td a').length === 3");
    // Browsers ask for an icon, and there is no file of this name.
    page.errors.retain(|error| !error.contains("favicon.ico"));
    looks_good(&mut page, "listing");
    page.open(&format!("{url}missing"));
    page.wait_for("document.querySelector('h1')?.textContent === '404'");
    page.errors.retain(|error| !error.contains("404 (Not Found)"));
    looks_good(&mut page, "missing");
}

/// Sends a request from each kind of form, as a user does it.
fn routes_work(page: &mut Page) {
    page.value("document.querySelectorAll('details').forEach(details => details.open = true)");
    for (path, part) in [
        ("/json", "Hello, World!"),
        ("/slow?ms=1000", "blocked"),
        ("/echo", "\nhello"),
        ("/events", "event: tick"),
        ("/ws/echo", "hello"),
        ("/upload", "\"bytes\":300000"),
        ("/files/words.txt", "warp"),
    ] {
        page.value(&format!(
            "var form = [...document.querySelectorAll('.try form')].find(form => form.path.value === '{path}'); \
             var answer = form.parentElement.querySelector('.answer'); form.requestSubmit()"
        ));
        page.wait_for(&format!("answer.textContent.includes({})", serde_json::to_string(part).unwrap()));
        // The same button ends a response that has no end.
        page.value("if (form.querySelector('button').textContent === 'Stop') form.requestSubmit()");
        page.wait_for("form.querySelector('button').textContent === 'Send'");
    }
    page.wait_for("document.getElementById('log').rows.length === 7");
    let code = page.value("document.querySelector('details pre:not(.answer, .curl)').textContent");
    assert!(code.as_str().unwrap().contains("Response::text(\"OK\")"), "{code}");
}

/// Expects no error, and no scrolling to the side at any width. Keeps a screenshot of each.
fn looks_good(page: &mut Page, name: &str) {
    for width in [360, 768, 1280] {
        for scheme in ["light", "dark"] {
            page.look(width, scheme);
            page.wait_for(&format!("innerWidth === {width}"));
            let wide = page.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= width.into(), "{name} is {wide} wide at {width}");
            page.screenshot(&format!("{name}-{width}-{scheme}.png"));
        }
    }
    assert_eq!(page.errors, [""; 0]);
}
