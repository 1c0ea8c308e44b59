//! Tests that no response from before a change of its target is sent or stored.

use super::*;

#[test]
fn what_is_changed_is_forgotten() {
    let handler = counting(|req, response| {
        let status: u16 = req.header("x-status").unwrap_or("200").parse().unwrap();
        let response = response.with_header(header::CACHE_CONTROL, MINUTE);
        response.with_status(StatusCode::from_u16(status).unwrap())
    });
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    for (target, status, forgets) in [
        ("/a", "200", true),
        ("/a", "303", true),
        ("/a", "400", false),
        ("/a", "500", true),
        ("/a?x", "200", false),
        ("http://LOCALHOST/a", "200", true),
    ] {
        let before = run(&mut client, "/a", &[]);
        client.post(target).header("x-status", status).send();
        assert_eq!(run(&mut client, "/a", &[]) != before, forgets, "POST {target} {status}");
    }
    let before = run(&mut client, "/a", &[]);
    client.options("/a").send();
    assert_eq!(run(&mut client, "/a", &[]), before);
    client.request(Method::from_bytes(b"SUBMIT").unwrap(), "/a").send();
    assert_ne!(run(&mut client, "/a", &[]), before);
}

/// The handler of a GET has read the old state, and ends after the change. The test uses the cache in between,
/// so no lock is held.
#[test]
fn what_a_change_overtook_is_not_kept() {
    for overtakes in [
        |cache: &Arc<ResponseCache>| cache.clear(),
        |cache: &Arc<ResponseCache>| {
            let writer = (|_: &mut Request<'_>| "written").with(cache.clone());
            assert_eq!(TestClient::new(writer).put("/").send().status, StatusCode::OK);
        },
    ] {
        let cache = Arc::new(ResponseCache::new());
        let inside = cache.clone();
        let handler = counting(move |_, response| {
            if response.body().unwrap() == "2" {
                overtakes(&inside);
            }
            response.with_header(header::CACHE_CONTROL, MINUTE)
        });
        let mut client = TestClient::new(handler.with(cache.clone()));
        assert_eq!(client.put("/").send().text(), "1", "it was changed before, too");
        assert!(!is_kept(&mut client, &[]));
        assert!(is_kept(&mut client, &[]));
        cache.clear();
        assert_eq!((run(&mut client, "/", &[]), bytes_of(&cache) > 0), (4, true));
    }
}

/// The writer makes the body, and with it the change, after the middleware has returned.
#[test]
fn what_a_writer_changes_is_forgotten_when_it_is_done() {
    let cache = Arc::new(ResponseCache::new());
    let fields =
        |_: &mut Request<'_>, response: Response| response.with_header(header::CACHE_CONTROL, MINUTE);
    let page: Arc<dyn Handler> = Arc::new(counting(fields).with(cache.clone()));
    let reader = page.clone();
    let writer = move |_: &mut Request<'_>| {
        let reader = reader.clone();
        Response::stream(move |out| {
            // Another request reads the old state.
            run(&mut TestClient::new(reader), "/", &[]);
            std::io::Write::write_all(out, b"changed")
        })
    };
    assert_eq!(TestClient::new(writer.with(cache)).put("/").send().text(), "changed");
    assert_eq!(run(&mut TestClient::new(page), "/", &[]), 2);
}

/// Targets share their counts of changes, but few do. Which ones is random: with 4,096 counts a hundred changes
/// affect one target of 40, and with 64 counts four of five.
#[test]
fn changes_of_other_targets_rarely_prevent_storing() {
    let cache = Arc::new(ResponseCache::new());
    let inside = cache.clone();
    let handler = counting(move |_, response| {
        let mut others = TestClient::new((|_: &mut Request<'_>| "written").with(inside.clone()));
        (0..100).for_each(|number| assert_eq!(others.post(format!("/{number}")).send().text(), "written"));
        response.with_header(header::CACHE_CONTROL, MINUTE)
    });
    let mut client = TestClient::new(handler.with(cache));
    let is_kept = |number: &usize| {
        let target = format!("/?{number}");
        run(&mut client, &target, &[]) == run(&mut client, &target, &[])
    };
    let kept = (0..20).filter(is_kept).count();
    assert!(kept >= 12, "{kept} of 20");
}

/// The handler may have changed something before its panic.
#[test]
fn what_a_handler_that_panics_may_have_changed_is_forgotten() {
    let handler = counting(|req, response| {
        assert!(req.method().is_safe(), "as asked");
        response.with_header(header::CACHE_CONTROL, MINUTE)
    });
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    let before = run(&mut client, "/", &[]);
    assert_eq!(client.put("/").send().status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_ne!(run(&mut client, "/", &[]), before);
}

/// An early refusal of a change says nothing of a change that comes later.
#[test]
fn a_change_that_comes_later_is_a_change() {
    use std::sync::Mutex;
    static SENDER: Mutex<Option<crate::ResponseSender>> = Mutex::new(None);
    let handler = counting(|req, response| {
        if *req.method() != Method::POST {
            return response.with_header(header::CACHE_CONTROL, MINUTE);
        }
        let (sender, later) = Response::later(Duration::from_secs(30), StatusCode::REQUEST_TIMEOUT);
        *SENDER.lock().unwrap() = Some(sender);
        later
    });
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    let mut change = client.connect();
    assert_eq!(run(&mut client, "/", &[]), 1);
    change.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(run(&mut client, "/", &[]), 3, "it may have happened by then");
    SENDER.lock().unwrap().take().unwrap().send("changed").unwrap();
    assert_eq!(change.response().text(), "changed");
    assert_eq!(run(&mut client, "/", &[]), 4);
}
