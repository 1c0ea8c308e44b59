//! Tests that the worker engine keeps its listeners apart: they share a port with each other, and with no other
//! server.

#[allow(dead_code)]
mod support;

use std::time::{Duration, Instant};

use support::{Client, EngineCase, Http2Client, Site, eventually};
use weftwork::{Engine, Request, Response, Server};

fn workers(listeners: usize) -> EngineCase {
    EngineCase { engine: Engine::Workers { listeners: Some(listeners) }, lacks: &[] }
}

#[test]
fn each_listener_is_served() {
    let site = workers(4).start();
    // The kernel spreads the connections by address and port. None of this many may reach a listener without a
    // thread.
    let mut clients: Vec<_> = (0..64).map(|_| site.client()).collect();
    clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    drop(clients);
    site.is_well();
}

#[test]
fn an_occupied_port_is_an_error_also_for_workers() {
    for engine_case in [workers(1), workers(3)] {
        let site = engine_case.start();
        let address = site.running.local_addr().unwrap().to_string();
        for other in [Engine::Workers { listeners: Some(3) }, Engine::default()] {
            // The address is refused before the engine is known: nothing is shared by accident.
            let error = Server::bind(&address).map(|server| server.engine(other)).unwrap_err();
            assert!(error.to_string().contains("another program listens there"), "{error}");
        }
        site.is_well();
    }
}

#[test]
fn workers_do_not_join_a_port_of_another_engine() {
    let site = EngineCase { engine: Engine::default(), lacks: &[] }.start();
    let address = site.running.local_addr().unwrap().to_string();
    assert!(Server::bind(&address).is_err());
    site.is_well();
}

#[test]
fn unix_sockets_are_shared() {
    let path = std::env::temp_dir().join(format!("weft-workers-{}.sock", std::process::id()));
    let site = Site::start(workers(3).bind(&format!("unix:{}", path.display())));
    let mut clients: Vec<_> = (0..12).map(|_| site.client()).collect();
    clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    drop(clients);
    drop(site);
    assert!(!path.exists(), "the socket is removed by the one that made it");
}

#[test]
fn at_the_most_threads_connections_wait() {
    let site = workers(2).start_with(|settings| settings.standby_kept(1).threads_max(2).queue_max(1));
    let mut blocked: Vec<_> = (0..2).map(|_| site.client()).collect();
    blocked.iter_mut().for_each(|client| {
        client.send("GET /gate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    });
    site.inside.gate.wait_for(2);
    // One request waits in the queue, the others in the kernel's.
    let mut waiting: Vec<_> = (0..4).map(|_| site.client()).collect();
    waiting.iter_mut().for_each(|client| {
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    });
    eventually("one is queued", || site.running.stats().queued >= 1);
    assert_eq!((site.calls(), site.running.threads()), (2, 2));
    site.inside.gate.open();
    blocked.iter_mut().for_each(|client| client.answer().is(200, "passed"));
    waiting.iter_mut().for_each(|client| client.answer().is(200, "hello"));
}

/// Both threads of the maximum are in a handler until the gate opens.
fn in_handlers(request_timeout: Duration) -> (Site, Vec<Client>) {
    let site = workers(2)
        .start_with(|settings| settings.standby_kept(1).threads_max(2).request_timeout(request_timeout));
    let mut blocked: Vec<_> = (0..2).map(|_| site.client()).collect();
    blocked.iter_mut().for_each(|client| client.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"));
    site.inside.gate.wait_for(2);
    (site, blocked)
}

/// The request is read when its connection gets a thread.
#[test]
fn a_request_that_has_waited_too_long_is_not_started() {
    // The requests of the other clients must start within this time, also on a busy machine.
    let time = Duration::from_secs(1);
    let (site, blocked) = in_handlers(time);
    let mut late = site.client();
    late.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is queued", || site.running.stats().queued == 1);
    std::thread::sleep(time);
    site.inside.gate.open();
    drop(blocked);
    let answer = late.answer();
    assert!(answer.status == 503 && answer.text().contains("not started in time"), "{answer:?}");
    assert_eq!(site.calls(), 2);
}

/// The time since then was spent waiting for the client.
#[test]
fn a_request_that_comes_late_to_a_connection_that_was_queued_is_answered() {
    let time = Duration::from_secs(1);
    let (site, blocked) = in_handlers(time);
    let (mut silent, mut slow) = (site.client(), site.client());
    slow.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    eventually("they are queued", || site.running.stats().queued == 2);
    site.inside.gate.open();
    drop(blocked);
    std::thread::sleep(time * 2);
    silent.get("/").is(200, "hello");
    slow.send("half");
    slow.answer().is(200, "halfhalf");
}

#[test]
fn clients_that_do_not_close_hold_no_needed_thread() {
    for queue_max in [0, 9] {
        let site = workers(2).start_with(|settings| {
            settings
                .standby_kept(1)
                .threads_max(2)
                .queue_max(queue_max)
                .linger_timeout(Duration::from_secs(3600))
        });
        let stay: Vec<_> = (0..8)
            .map(|_| {
                let mut client = site.client();
                client.send("nonsense\r\n\r\n");
                assert_eq!(client.answer().status, 400);
                client
            })
            .collect();
        site.client().get("/").is(200, "hello");
        drop(stay);
    }
}

/// They keep their connections, even if they hold all threads.
#[test]
fn idle_clients_are_not_closed_while_threads_are_free() {
    let time = Duration::from_secs(2);
    let site = workers(1)
        .start_with(|settings| settings.standby_kept(1).threads_max(2).queue_max(0).idle_timeout(time));
    let begun = Instant::now();
    let mut idle: Vec<_> = (0..2).map(|_| site.client()).collect();
    idle.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    let ends = idle.into_iter().map(|client| {
        std::thread::spawn(move || {
            client.ends();
            begun.elapsed()
        })
    });
    for end in ends.collect::<Vec<_>>() {
        let after = end.join().unwrap();
        assert!(after + Duration::from_millis(2) >= time, "{after:?}");
    }
}

/// Clients that send nothing do not hold a thread either, with and without a queue.
#[test]
fn idle_clients_hold_no_needed_thread() {
    for queue_max in [0, 9] {
        let site = workers(2).start_with(|settings| {
            settings
                .standby_kept(1)
                .threads_max(2)
                .queue_max(queue_max)
                .idle_timeout(Duration::from_secs(3600))
        });
        let mut idle: Vec<_> = (0..2).map(|_| site.client()).collect();
        idle.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
        site.client().get("/").is(200, "hello");
        drop(idle);
        site.is_well();
    }
}

#[test]
fn threads_are_used_again() {
    let site = workers(1).start_with(|settings| settings.standby_kept(2));
    for _ in 0..50 {
        let mut client: Client = site.client();
        client.send("GET /thread HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.answer().is(200, "noted");
        client.ends();
    }
    assert!(site.calls_by_thread().len() <= 4, "{:?}", site.calls_by_thread());
}

/// A thread that dies is replaced for a connection that already waits.
#[test]
fn a_waiting_request_gets_a_thread_that_replaces_a_dead_one() {
    struct Mine;
    impl Drop for Mine {
        fn drop(&mut self) {
            panic!("a mine in a response");
        }
    }
    let gate = std::sync::Arc::new(support::Gate::default());
    let inside = gate.clone();
    let handler = move |req: &mut Request| {
        if req.path() != "/" {
            inside.pass();
        }
        let mine = (req.path() == "/mine").then(|| Mine);
        // An answer to HEAD has no body, so its writer is dropped.
        Response::stream(move |_| {
            drop(mine);
            Ok(())
        })
    };
    let server = workers(1).bind("127.0.0.1:0").settings(|s| s.standby_kept(1).threads_max(2));
    let running = server.start(handler).unwrap();
    let ask = |method: &str, path: &str| {
        let mut client = Client::connect(&running);
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        client
    };
    let both = [ask("HEAD", "/mine"), ask("HEAD", "/mine")];
    gate.wait_for(2);
    let mut waiting = ask("GET", "/");
    eventually("it is queued", || running.stats().queued == 1);
    gate.open();
    waiting.answer().is(200, "");
    both.into_iter().for_each(|client| drop(client.rest()));
}

/// A connection waited for a thread, and its client has left. It costs no call.
#[test]
fn a_queued_request_whose_client_has_left_is_not_started() {
    let site = workers(1).start_with(|settings| settings.standby_kept(1).threads_max(2).queue_max(1));
    let ask = |path: &str| {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        client
    };
    let mut blocked = [ask("/gate"), ask("/gate")];
    site.inside.gate.wait_for(2);
    let left = ask("/");
    eventually("it is queued", || site.running.stats().queued == 1);
    left.reset();
    site.inside.gate.open();
    blocked.iter_mut().for_each(|client| client.answer().is(200, "passed"));
    eventually("it is given up", || site.running.stats().queue_abandoned == 1);
    assert_eq!(site.calls(), 2);
    ask("/").answer().is(200, "hello");
}

/// With two threads, connections that held them would keep them from their own requests.
#[test]
fn a_connection_of_http2_holds_no_thread() {
    let site = Site::start(
        workers(2)
            .bind("127.0.0.1:0")
            .settings(|settings| settings.http2_cleartext(true).standby_kept(1).threads_max(2).queue_max(1)),
    );
    let mut clients: Vec<_> = (0..8).map(|_| Http2Client::connect(&site.running)).collect();
    for _ in 0..3 {
        for client in &mut clients {
            let stream = client.get("/");
            client.answer(stream).is(200, "hello");
        }
    }
    // A body that is waited for holds a thread, and its frames arrive all the same.
    let upload = clients[0].request("POST", "/echo", &[("expect", "100-continue")], false);
    clients[0].wait("100", |client| client.interim(upload) == [100]);
    clients[0].send_body(upload, &[b'x'; 100_000]);
    clients[0].answer(upload).is(200, [b'x'; 100_000]);
    // Two requests have the threads, one waits, and the next one is refused.
    let blocked = clients[1].get_all(["/gate", "/gate"]);
    site.inside.gate.wait_for(2);
    let queued = clients[2].get("/");
    eventually("one is queued", || site.running.stats().queued >= 1);
    clients[2].ping();
    let refused = clients[3].get("/");
    let answer = clients[3].answer(refused);
    assert!(answer.status == 503 && answer.field("retry-after").is_some(), "{answer:?}");
    site.inside.gate.open();
    blocked.into_iter().for_each(|stream| clients[1].answer(stream).is(200, "passed"));
    clients[2].answer(queued).is(200, "hello");
    assert!(site.running.threads() <= 2);
}
