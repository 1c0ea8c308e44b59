//! A live clock for any number of clients: `cargo run -p weftwork-examples --example clock`, then
//! <http://127.0.0.1:8080>. One browser can show six pages, because it opens no more connections to a host over
//! HTTP/1.1.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weftwork::prelude::*;
use weftwork::{Event, EventHub};

const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>Clock</title><h1>-</h1><script>
new EventSource("/events").onmessage = event => document.querySelector("h1").textContent = event.data;
</script>"#;

fn site(clock: EventHub) -> impl Handler {
    move |req: &mut Request| match req.path() {
        "/" => html(PAGE),
        "/events" => clock.join(req),
        _ => Response::new(StatusCode::NOT_FOUND),
    }
}

/// The only thread, for any number of clients.
fn tick(clock: &EventHub) {
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        clock.send(&Event::new(format!("{} seconds since 1970", now.as_secs())));
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn main() -> weftwork::Result<()> {
    let clock = EventHub::default();
    let ticking = clock.clone();
    std::thread::spawn(move || tick(&ticking));
    Server::bind("127.0.0.1:8080")?.run(site(clock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftwork::TestClient;

    #[test]
    fn the_time_is_shown() {
        let clock = EventHub::default();
        let mut page = TestClient::new(site(clock.clone())).events("/events");
        assert_eq!(clock.send(&Event::new("noon")), 1);
        assert_eq!(page.read(), Some(Event::new("noon").into()));
        clock.close_all();
        assert!(page.is_over());
    }
}
