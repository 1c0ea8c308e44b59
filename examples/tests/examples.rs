//! Tests that every example works, in memory or on a port of its own.

// `main` is not called, because it would serve until a signal arrives.
#[path = "../examples/hello.rs"]
#[allow(dead_code)]
mod hello;
#[path = "../examples/https.rs"]
#[allow(dead_code)]
mod https;
#[path = "../examples/notes.rs"]
#[allow(dead_code)]
mod notes;
#[path = "../examples/routes.rs"]
#[allow(dead_code)]
mod routes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weftwork::middleware::Deadline;
use weftwork::{HandlerExt, Server, TestClient};

use notes::Notes;

#[test]
fn hello_greets_over_a_socket() {
    let server = Server::bind("127.0.0.1:0").unwrap().start(hello::hello).unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(b"GET /here HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello from /here\n"),
        "{answer}"
    );
}

/// tests/tls.rs of the library has clients that speak TLS.
#[test]
fn https_names_what_the_client_asked_for() {
    let mut client = TestClient::new(https::hello);
    assert!(client.get("/").send().text().ends_with(" asked for no name by http\n"));
}

#[test]
fn routes_are_linked_and_answered() {
    let mut client = TestClient::new(weftwork::routes(routes::site));
    let home = client.get("/").send();
    assert!(home.text().contains("<li><a href=\"/books/2\">Dune</a>"), "{}", home.text());
    assert_eq!(client.get("/books/2").send().text(), "Dune\n");
    assert_eq!(client.get("/books/3").send().status, 404);
    assert_eq!(client.get("/books/x").send().status, 400);
    let found = client.get("/search?word=e&limit=1").send();
    assert_eq!(found.text(), "<ul><li><a href=\"/books/1\">Ulysses</a></ul>\n");
    let hidden = client.post("/admin/books/1/hide").send();
    assert_eq!((hidden.status.as_u16(), hidden.header("location")), (303, Some("/books/1")));
}

/// Writers that all wait for the lock of SQLite, and a fast route beside them. Every response is correct.
#[test]
fn notes_are_kept_while_others_are_quick() {
    const WRITERS: usize = 4;
    // Much longer than `/health` ever takes, and shorter than SQLite waits for a lock.
    const QUICK: Duration = Duration::from_secs(2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.sqlite");
    let server = Server::bind("127.0.0.1:0")
        .unwrap()
        .start(notes::site(Arc::new(Notes::open(&file).unwrap())))
        .unwrap();
    let address = server.local_addr().unwrap();
    let ask = move |head: &str, body: &str| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = body.len();
        write!(
            client,
            "{head} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let locked = rusqlite::Connection::open(&file).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let written = Arc::<AtomicUsize>::default();
    let writers = (0..WRITERS).map(|writer| {
        let written = written.clone();
        std::thread::spawn(move || {
            for count in 0..5 {
                let text = format!("note {count} of {writer}");
                let added = ask("POST /notes", &format!("{{\"text\":\"{text}\"}}"));
                written.fetch_add(1, Ordering::SeqCst);
                let id = added.split("\"id\":").nth(1).and_then(|rest| rest.split(',').next()).expect(&added);
                let read = ask(&format!("GET /notes/{id}"), "");
                assert!(read.contains(&text), "{read}");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let begun = Instant::now();
    while server.threads() <= WRITERS {
        assert!(begun.elapsed() < QUICK, "each writer gets a thread to wait on, and one is left to lead");
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..20 {
        let begun = Instant::now();
        assert!(ask("GET /health", "").ends_with("\r\n\r\nOK"));
        assert!(begun.elapsed() < QUICK, "a quick route took {:?} beside writers that wait", begun.elapsed());
    }
    assert_eq!(written.load(Ordering::SeqCst), 0, "all writers have waited meanwhile");
    locked.execute_batch("COMMIT").unwrap();
    for writer in writers {
        writer.join().unwrap();
    }
    let missing = ask("GET /notes/999", "");
    assert!(missing.starts_with("HTTP/1.1 404 ") && missing.contains("there is no note 999"), "{missing}");
    let wrong = ask("POST /notes", "{\"text\":7}");
    assert!(wrong.starts_with("HTTP/1.1 422 ") && wrong.contains("\"field\":\"text\""), "{wrong}");
}

/// If every connection is in use, a request waits no longer than its own deadline allows, and gets the reason.
#[test]
fn the_wait_for_a_connection_ends() {
    let folder = tempfile::tempdir().unwrap();
    let notes = Arc::new(Notes::open(&folder.path().join("notes.sqlite")).unwrap());
    let lent = std::mem::take(&mut *notes.pool.free.lock().unwrap());
    assert_eq!(lent.len(), notes::CONNECTIONS);
    let soon = Deadline::new(Duration::from_millis(20));
    let mut client = TestClient::new(notes::site(notes.clone()).with(soon));
    let begun = Instant::now();
    let answer = client.get("/notes/1").send();
    assert!(begun.elapsed() < notes::WAIT_MAX, "it waited for {:?}", begun.elapsed());
    assert!(answer.status == 503 && answer.text().contains("the database is busy"), "{}", answer.text());
    notes.pool.free.lock().unwrap().extend(lent);
    assert_eq!(client.get("/notes/1").send().status, 404);
    assert_eq!(notes.pool.free.lock().unwrap().len(), notes::CONNECTIONS, "all of them came back");
}
