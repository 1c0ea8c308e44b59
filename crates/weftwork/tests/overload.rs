//! Tests that the metrics page shows under overload what clients see: the share of errors, and how long requests take.

#![cfg(feature = "metrics")]

#[allow(dead_code)]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, Gate, eventually};
use weftwork::middleware::Metrics;
use weftwork::{Engine, HandlerExt, Request, Router, Running, Server, Settings, blocks};

/// Bounds of the histogram, in seconds.
const BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

fn start(time: Duration, change: impl FnOnce(Settings) -> Settings) -> Running {
    let server =
        Server::bind("127.0.0.1:0").unwrap().engine(Engine::Adaptive { loops: Some(2) }).settings(change);
    let metrics = Metrics::new().server(server.status());
    let server = server.admin("127.0.0.1:0", metrics.page()).unwrap();
    let slow = blocks(move |_: &mut Request| {
        std::thread::sleep(time);
        "slept"
    });
    server.start(Router::new().get("/slow", slow).with(metrics)).unwrap()
}

fn page(running: &Running) -> String {
    Client::connect_to(&running.admin_addresses()[0]).get("/").text().to_owned()
}

/// Returns the sum of the samples of a name whose labels contain `label`.
fn sum(page: &str, name: &str, label: &str) -> u64 {
    let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

fn count(page: &str, status: &str) -> u64 {
    let label = format!("http_response_status_code=\"{status}\"");
    sum(page, "http_server_request_duration_seconds_count", &label)
}

/// Sends requests one after the other on each of many connections. Returns status and duration of each.
fn load(running: &Running, clients: usize, requests: usize) -> Vec<(u16, f64)> {
    let client = |_| {
        let mut client = Client::connect(running);
        let mut seen = Vec::new();
        for _ in 0..requests {
            let begun = Instant::now();
            let answer = client.get("/slow");
            seen.push((answer.status, begun.elapsed().as_secs_f64()));
            if answer.closes() {
                client = Client::connect(running);
            }
        }
        seen
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn the_page_counts_each_refusal_that_clients_see() {
    let running = start(Duration::from_millis(20), |s| s.threads_max(4).standby_kept(1).queue_max(4));
    let seen = load(&running, 40, 10);
    let of_status = |status: u16| seen.iter().filter(|(seen, _)| *seen == status).count() as u64;
    assert!(of_status(503) > 0 && of_status(200) > 0, "no overload");
    assert_eq!(of_status(503) + of_status(200), 400);
    let mut shown = String::new();
    // The last response is recorded after its client has it.
    eventually("all responses are counted", || {
        shown = page(&running);
        count(&shown, "") == 400 || count(&shown, "200") + count(&shown, "503") == 400
    });
    assert_eq!((count(&shown, "200"), count(&shown, "503")), (of_status(200), of_status(503)), "{shown}");
    assert_eq!(sum(&shown, "weftwork_shed_total", "queue_full"), of_status(503));
    assert_eq!(running.stats().shed, of_status(503));
    assert!(shown.contains("error_type=\"queue_full\""), "{shown}");
}

#[test]
fn the_page_shows_the_wait_for_a_thread() {
    let running = start(Duration::from_millis(30), |s| s.threads_max(3).standby_kept(1).queue_max(100));
    let mut seen: Vec<f64> = load(&running, 24, 8)
        .into_iter()
        .map(|(status, took)| {
            assert_eq!(status, 200);
            took
        })
        .collect();
    seen.sort_by(f64::total_cmp);
    let mut shown = String::new();
    eventually("all responses are counted", || {
        shown = page(&running);
        count(&shown, "200") == 192
    });
    for share in [0.5, 0.99] {
        let of_clients = seen[(seen.len() as f64 * share) as usize];
        let bucket = BOUNDS.iter().position(|bound| of_clients <= *bound).unwrap_or(BOUNDS.len());
        let shown_bucket = BOUNDS.iter().position(|bound| {
            let label = format!("le=\"{bound:?}\"");
            sum(&shown, "http_server_request_duration_seconds_bucket", &label) as f64 >= 192.0 * share
        });
        let shown_bucket = shown_bucket.unwrap_or(BOUNDS.len());
        assert!(
            bucket.abs_diff(shown_bucket) <= 1,
            "share {share}: clients saw {of_clients} s, and the page has bucket {shown_bucket} of {BOUNDS:?}: {shown}"
        );
    }
    let waits =
        shown.lines().find_map(|line| line.strip_prefix("weftwork_queue_wait_seconds_count ")).unwrap();
    assert!(waits.parse::<u64>().unwrap() > 0, "{shown}");
}

#[test]
fn the_queue_and_its_limits_are_on_the_page() {
    let running = start(Duration::from_millis(300), |s| s.threads_max(3).standby_kept(1).queue_max(100));
    std::thread::scope(|scope| {
        scope.spawn(|| load(&running, 12, 1));
        eventually("requests wait", || {
            let shown = page(&running);
            let has = |line: &str| shown.lines().any(|shown| shown.starts_with(line));
            has("weftwork_threads_max 3") && has("weftwork_queue_max 100") && !has("weftwork_queue_length 0")
        });
    });
}

/// With 2,000 clients, and with a limit for the time of `/health`, if it is asked for:
/// `WEFT_TEST_OVERLOAD=1 cargo test --release -p weftwork --features full --test overload side_listener -- --nocapture`
#[test]
fn the_side_listener_answers_while_all_threads_are_blocked() {
    let is_measured = std::env::var_os("WEFT_TEST_OVERLOAD").is_some();
    let (clients, probes) = if is_measured { (2000, 1000) } else { (200, 20) };
    let queue_max = clients / 2;
    let all = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: all.maximum, ..all }).unwrap();
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let site = Router::new().get(
        "/gate",
        blocks(move |_: &mut Request| {
            passed.pass();
            "passed"
        }),
    );
    let server = Server::bind("127.0.0.1:0").unwrap().engine(Engine::Adaptive { loops: Some(2) });
    let server = server.settings(|s| s.threads_max(64).queue_max(queue_max));
    let metrics = Metrics::new().server(server.status());
    let side = Router::new().get("/health", || "OK").get("/metrics", metrics.page());
    let running = server.admin("127.0.0.1:0", side).unwrap().start(site.with(metrics)).unwrap();
    let count_all = clients as u64;
    let mut clients: Vec<Client> = (0..clients).map(|_| Client::connect(&running)).collect();
    clients.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    eventually("all threads are blocked, and the queue is full", || {
        let stats = running.stats();
        let (queued, inside) = (queue_max as u64, gate.inside() as u64);
        stats.queued == queued && stats.shed + queued + inside == count_all
    });
    let mut probe = Client::connect_to(&running.admin_addresses()[0]);
    let mut times: Vec<Duration> = (0..probes)
        .map(|_| {
            let begun = Instant::now();
            probe.get("/health").is(200, "OK");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let [p50, p99, max] = [probes / 2, probes * 99 / 100, probes - 1].map(|at| times[at]);
    gate.open();
    let statuses = clients.iter_mut().map(|client| client.answer().status);
    let refused = statuses.filter(|status| *status == 503).count();
    let mut shown = String::new();
    eventually("all responses are counted", || {
        shown = probe.get("/metrics").text().to_owned();
        count(&shown, "200") + count(&shown, "503") == count_all
    });
    let on_page = count(&shown, "503");
    println!(
        "/health p50 {p50:?}, p99 {p99:?}, max {max:?}; clients saw {refused} times 503, the page shows {on_page}, of {count_all}"
    );
    assert!(!is_measured || p99 < Duration::from_millis(10), "{p99:?}");
    assert_eq!(on_page, refused as u64);
}
