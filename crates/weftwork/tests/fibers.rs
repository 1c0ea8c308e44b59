//! Tests the guarantees of the fibers engine beyond the matrix: waits cost no thread, and end with the server.
#![cfg(feature = "fibers")]

// Each test binary uses a part of it.
#[allow(dead_code, unused_imports)]
mod support;

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use support::{Client, TIMEOUT, eventually, is_logged, keep_log, noise};
use weftwork::http::{HeaderValue, StatusCode};
use weftwork::{
    BodyWriter, Engine, Handler, Request, RequestLine, Response, Result, Running, Server, Settings,
};

/// More than any pair of sockets buffers.
const LARGE: usize = 64 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// State that the handlers share with the test.
#[derive(Default)]
struct Shared {
    /// Handlers that have begun, and handlers that have ended, for whatever reason.
    begun: AtomicUsize,
    gone: AtomicUsize,
    /// Calls that have begun on another thread.
    elsewhere: AtomicUsize,
    open: AtomicBool,
    threads: Mutex<HashSet<ThreadId>>,
}

struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::SeqCst);
    }
}

/// Writes more than its client's socket buffers when it is dropped, as a `BufWriter` does.
struct WriteOnDrop<'a, 'b>(&'a mut BodyWriter<'b>);

impl Drop for WriteOnDrop<'_, '_> {
    fn drop(&mut self) {
        assert!(self.0.write_all(&noise(LARGE)).is_err());
    }
}

impl Shared {
    fn answer(self: &Arc<Shared>, req: &mut Request) -> Result<Response> {
        if req.path() == "/" {
            return Ok(Response::text("hello"));
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _guard = Guard(self);
        Ok(match req.path() {
            "/wait" => self.wait(),
            "/hour" => {
                weftwork::sleep(HOUR);
                Response::text("late")
            }
            "/blocking" => {
                let shared = self.clone();
                weftwork::blocking(move || {
                    shared.elsewhere.fetch_add(1, Ordering::SeqCst);
                    shared.block();
                });
                Response::text("done elsewhere")
            }
            "/stuck" => {
                self.block();
                Response::text("done here")
            }
            "/length" => Response::text(req.body().limit(u64::MAX).bytes()?.len().to_string()),
            "/download" => self.download(),
            "/last-words" => Response::stream(|out| {
                let _last = WriteOnDrop(out);
                panic!("as asked")
            }),
            "/panic" => {
                weftwork::sleep(Duration::from_millis(1));
                panic!("as asked")
            }
            "/panic-elsewhere" => weftwork::blocking(|| panic!("as asked")),
            "/caught" => {
                let caught = catch_unwind(|| weftwork::blocking(|| panic!("as asked"))).unwrap_err();
                Response::text(*caught.downcast_ref::<&str>().unwrap_or(&"another panic"))
            }
            "/deep" => Response::text(deep(200).to_string()),
            _ => Response::new(StatusCode::NOT_FOUND),
        })
    }

    fn wait(&self) -> Response {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).insert(std::thread::current().id());
        while !self.open.load(Ordering::SeqCst) {
            weftwork::sleep(Duration::from_millis(20));
        }
        Response::text("waited")
    }

    /// Blocks its thread until the test releases it.
    fn block(&self) {
        eventually("the test opens", || self.open.load(Ordering::SeqCst));
    }

    fn download(self: &Arc<Shared>) -> Response {
        let shared = self.clone();
        Response::stream(move |out| {
            let _guard = Guard(&shared);
            out.write_all(&noise(LARGE))
        })
    }

    fn begun(&self, count: usize) {
        eventually("the handlers begin", || self.begun.load(Ordering::SeqCst) >= count);
    }

    fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

/// Uses about 200 bytes of stack for each level, and more in a debug build.
fn deep(levels: usize) -> usize {
    let here = std::hint::black_box([levels; 64]);
    if levels == 0 { here[0] } else { deep(levels - 1) + usize::from(here[0] == levels) }
}

fn start_with(change: impl FnOnce(Settings) -> Settings) -> (Running, Arc<Shared>) {
    let shared = Arc::<Shared>::default();
    let handlers = shared.clone();
    let server = Server::bind("127.0.0.1:0").unwrap().engine(Engine::Fibers { threads: Some(1) });
    let running = server.settings(change).start(move |req: &mut Request| handlers.answer(req)).unwrap();
    (running, shared)
}

fn start() -> (Running, Arc<Shared>) {
    start_with(|settings| settings)
}

fn ask(running: &Running, path: &str) -> Client {
    let mut client = Client::connect(running);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

#[test]
fn a_thousand_handlers_wait_on_one_thread_and_quick_ones_do_not() {
    const WAITING: usize = 1000;
    let (running, shared) = start();
    let mut clients: Vec<_> = (0..WAITING).map(|_| ask(&running, "/wait")).collect();
    shared.begun(WAITING);
    let mut quick = Client::connect(&running);
    for _ in 0..100 {
        quick.get("/").is(200, "hello");
    }
    assert_eq!((shared.gone(), running.threads()), (0, 1));
    shared.open();
    clients.iter_mut().for_each(|client| client.answer().is(200, "waited"));
    assert_eq!(shared.threads.lock().unwrap().len(), 1, "every handler ran on the one thread");
    clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    assert_eq!(running.threads(), 1);
}

#[test]
fn a_handler_that_waits_for_its_body_does_not_delay_others() {
    let (running, shared) = start();
    let body = noise(1 << 20);
    let mut slow = Client::connect(&running);
    slow.send(format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    for part in body.chunks(256 << 10) {
        slow.send(part);
        shared.begun(1);
        Client::connect(&running).get("/").is(200, "hello");
    }
    slow.answer().is(200, body.len().to_string());
    slow.get("/").is(200, "hello");
}

#[test]
fn a_handler_whose_client_does_not_read_does_not_delay_others() {
    let (running, shared) = start();
    let mut slow = ask(&running, "/download");
    shared.begun(1);
    Client::connect(&running).get("/").is(200, "hello");
    assert_eq!(shared.gone(), 1, "the handler has returned, and its stream waits");
    assert!(slow.answer().body == noise(LARGE));
    assert_eq!(shared.gone(), 2);
    slow.get("/").is(200, "hello");
}

/// A fiber that unwinds cannot be suspended.
#[test]
fn output_during_an_unwind_does_not_delay_others() {
    let (running, _) = start_with(|settings| settings.write_timeout(HOUR));
    let unread = ask(&running, "/last-words");
    eventually("it has panicked", || running.stats().panics == 1);
    Client::connect(&running).get("/").is(200, "hello");
    drop(unread);
}

/// The protocol of the connection runs on fibers of its own, and learns of the server's stop as on a thread.
#[cfg(target_os = "linux")]
#[test]
fn a_half_used_by_other_fibers_sees_the_end() {
    let server = Server::bind("127.0.0.1:0").unwrap().engine(Engine::Fibers { threads: Some(1) });
    let (tell, told) = channel();
    let running = server.start(move |_: &mut Request| {
        let tell = tell.clone();
        Response::upgrade(HeaderValue::from_static("echo"), move |line| {
            let (mut reader, _writer) = line.split();
            let read = move || {
                reader.set_timeout(None);
                reader.read(&mut [0; 8]).map_err(|error| error.kind())
            };
            let thread = std::thread::Builder::new().name("half".into());
            thread.spawn(move || tell.send(weftwork_fiber::run(read))).map(drop)
        })
    });
    let running = running.unwrap();
    let mut client = Client::connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.answer_head().status, 101);
    eventually("it waits", || sleeps("half"));
    running.shutdown(Duration::ZERO);
    let read = told.recv_timeout(TIMEOUT).expect("the read has ended");
    assert!(matches!(read, Ok(Err(ErrorKind::ConnectionAborted))), "{read:?}");
}

/// Returns true if the thread of that name is waiting (proc_pid_stat(5)).
#[cfg(target_os = "linux")]
fn sleeps(thread: &str) -> bool {
    let stats = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = stats.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.into_iter().any(|stat| stat.contains(&format!("({thread}) S ")))
}

#[test]
fn the_deadlines_of_a_client_hold_while_a_fiber_waits_for_it() {
    let short = Duration::from_millis(100);
    let (running, shared) = start_with(|settings| settings.body_idle_timeout(short).write_timeout(short));
    let mut slow = Client::connect(&running);
    slow.send(format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"));
    slow.send(noise(256 << 10));
    assert_eq!(slow.answer().status, 408);
    let unread = ask(&running, "/download");
    eventually("the fiber gives up", || shared.gone() == 3);
    drop((slow, unread));
    eventually("every connection ends", || running.stats().connections == 0);
}

#[test]
fn input_during_a_wait_of_the_handler_is_not_missed() {
    let (running, shared) = start();
    let mut client = ask(&running, "/wait");
    shared.begun(1);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.half_close();
    // The loop has seen both by the time of this answer.
    Client::connect(&running).get("/").is(200, "hello");
    shared.open();
    client.answer().is(200, "waited");
    client.answer().is(200, "hello");
    eventually("every connection ends", || running.stats().connections == 0);
}

/// Waits in the method that is called for each request, which runs on the loop's fiber: `/wait` ends in the
/// meantime.
struct WaitsAhead(Arc<Shared>);

impl Handler for WaitsAhead {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.0.answer(req).unwrap_or_else(|_| Response::new(StatusCode::BAD_REQUEST))
    }

    fn reads_ahead(&self, _: &RequestLine<'_>) -> bool {
        self.0.open();
        while self.0.gone() == 0 {
            weftwork::sleep(Duration::from_millis(1));
        }
        true
    }
}

#[test]
fn output_made_while_the_loop_blocks_is_sent_afterwards() {
    let shared = Arc::<Shared>::default();
    let server = Server::bind("127.0.0.1:0").unwrap().engine(Engine::Fibers { threads: Some(1) });
    // No deadline wakes the loop before its client gives up.
    let server = server.settings(|settings| settings.body_idle_timeout(HOUR).rate_bytes_min(0));
    let running = server.start(WaitsAhead(shared.clone())).unwrap();
    let mut waiting = ask(&running, "/wait");
    shared.begun(1);
    let mut asking = Client::connect(&running);
    // By then the poller has reported that the socket is writable, and will not report it again.
    (0..2).for_each(|_| asking.get("/").is(200, "hello"));
    asking.send(
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n",
    );
    waiting.answer().is(200, "waited");
    asking.send("x");
    asking.answer().is(200, "hello");
    asking.answer().is(200, "1");
}

#[test]
fn a_panic_after_a_wait_costs_one_request() {
    let (running, _) = start();
    for (path, panics) in [("/panic", 1), ("/panic-elsewhere", 2)] {
        let mut client = ask(&running, path);
        let answer = client.answer();
        assert!(answer.status == 500 && answer.closes(), "{answer:?}");
        assert_eq!(running.stats().panics, panics);
    }
    let mut client = Client::connect(&running);
    client.get("/caught").is(200, "as asked");
    client.get("/").is(200, "hello");
}

#[test]
fn blocking_work_runs_elsewhere() {
    let (running, shared) = start();
    let mut client = ask(&running, "/blocking");
    shared.begun(1);
    Client::connect(&running).get("/").is(200, "hello");
    assert_eq!((shared.gone(), running.threads()), (0, 2));
    shared.open();
    client.answer().is(200, "done elsewhere");
}

#[test]
fn blocking_work_obeys_the_limits_of_its_server() {
    keep_log();
    const QUEUE: usize = 10;
    let (running, shared) = start_with(|settings| settings.threads_max(4).standby_kept(1).queue_max(QUEUE));
    // One thread runs the loop.
    let mut clients: Vec<_> = (0..3 + QUEUE).map(|_| ask(&running, "/blocking")).collect();
    shared.begun(3 + QUEUE);
    for count in 1..=3 {
        let answer = ask(&running, "/blocking").answer();
        assert!(answer.status == 503 && answer.closes(), "{answer:?}");
        assert!(
            answer.text().contains(r#""detail":"the server is too busy for this request""#),
            "{answer:?}"
        );
        is_logged(&["no thread for a blocking call (threads_max is 4, queue_max is 10) at GET /blocking"]);
        assert_eq!(answer.field("retry-after"), Some("1"));
        assert_eq!((running.stats().shed, running.stats().panics), (count, 0));
    }
    assert_eq!(running.threads(), 4);
    Client::connect(&running).get("/").is(200, "hello");
    shared.open();
    clients.iter_mut().for_each(|client| client.answer().is(200, "done elsewhere"));
    assert_eq!(running.threads(), 4);
}

#[test]
fn a_server_that_drains_lets_fibers_finish() {
    let (running, shared) = start();
    let address = running.local_addr().unwrap();
    let mut client = ask(&running, "/wait");
    shared.begun(1);
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    eventually("nobody is let in", || TcpStream::connect(address).is_err());
    shared.open();
    let answer = client.answer();
    answer.is(200, "waited");
    assert!(answer.closes());
    let report = stopping.join().unwrap();
    // A new client above may have been accepted just before the listener closed.
    assert!(report.drained >= 1 && (report.cut, report.stuck) == (0, 0), "{report}");
}

#[test]
fn the_end_of_a_server_runs_the_destructors_of_every_handler() {
    let (running, shared) = start();
    let status = running.status();
    let paths = ["/hour", "/wait", "/blocking", "/download"];
    let clients: Vec<_> = paths.iter().map(|path| ask(&running, path)).collect();
    let mut upload = Client::connect(&running);
    upload.send(format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"));
    upload.send(noise(256 << 10));
    shared.begun(5);
    eventually("a call has begun elsewhere", || shared.elsewhere.load(Ordering::SeqCst) == 1);
    let report = running.shutdown(Duration::ZERO);
    // A call on another thread cannot be unwound.
    assert_eq!((report.cut, report.stuck), (5, 1));
    // The download counts twice: its handler and its stream.
    assert_eq!(shared.gone(), 6);
    assert_eq!((status.stats().panics, status.stats().connections), (0, 0));
    shared.open();
    drop((clients, upload));
}

#[test]
fn a_handler_that_blocks_its_thread_is_counted_as_stuck() {
    let (running, shared) = start();
    let _client = ask(&running, "/stuck");
    shared.begun(1);
    let report = running.shutdown(Duration::ZERO);
    assert_eq!(report.stuck, 1);
    shared.open();
    eventually("the thread ends", || shared.gone() == 1);
}

/// Its fiber has ended, and the call has not.
#[test]
fn blocking_work_on_another_thread_is_counted_as_stuck() {
    let (running, shared) = start();
    let _client = ask(&running, "/blocking");
    eventually("it has begun", || shared.elsewhere.load(Ordering::SeqCst) == 1);
    let report = running.shutdown(Duration::ZERO);
    assert_eq!((report.stuck, shared.gone()), (1, 1));
    shared.open();

    let (running, shared) = start();
    let _client = ask(&running, "/blocking");
    eventually("it has begun", || shared.elsewhere.load(Ordering::SeqCst) == 1);
    let letting_go = {
        let shared = shared.clone();
        std::thread::spawn(move || {
            eventually("its fiber is gone", || shared.gone() == 1);
            shared.open();
        })
    };
    assert_eq!(running.shutdown(Duration::ZERO).stuck, 0, "it ends in time");
    letting_go.join().unwrap();
}

#[test]
fn the_stack_of_a_request_is_a_setting() {
    let (running, _) = start_with(|settings| settings.fiber_stack_bytes(1 << 20));
    Client::connect(&running).get("/deep").is(200, "200");
    let few = Server::bind("127.0.0.1:0").unwrap().settings(|s| s.fiber_stack_bytes(4096));
    let error = few.start(|_: &mut Request| "hello").unwrap_err().to_string();
    assert!(error.contains("fiber_stack_bytes") && error.contains("16384"), "{error}");
    let many = Server::bind("127.0.0.1:0").unwrap().engine(Engine::Fibers { threads: Some(1) });
    let many = many.settings(|s| s.fiber_stack_bytes(1 << 50));
    let error = many.start(|_: &mut Request| "hello").unwrap_err();
    assert!(format!("{error:#}").contains("fiber_stack_bytes is 1048576GiB"), "{error:#}");
}
