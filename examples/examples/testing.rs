//! A handler and its tests without a port: `cargo test -p weftwork-examples --example testing`.

use weftwork::prelude::*;

/// `/shout` returns the body in upper case. `/later` takes an hour.
fn site(req: &mut Request) -> Result<Response> {
    Ok(match (req.method(), req.path()) {
        (&Method::POST, "/shout") => Response::text(req.body().text()?.to_uppercase()),
        (&Method::GET, "/later") => {
            weftwork::sleep(std::time::Duration::from_secs(3600));
            Response::text("done")
        }
        _ => Response::new(StatusCode::NOT_FOUND),
    })
}

fn main() -> weftwork::Result<()> {
    Server::bind("127.0.0.1:8080")?.run(site)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use weftwork::TestClient;

    #[test]
    fn shouts() {
        let mut client = TestClient::new(site);
        let answer = client.post("/shout").header("accept", "text/plain").body("hello").send();
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.text(), "HELLO");
        assert_eq!(client.get("/").send().status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn an_hour_is_over_at_once() {
        let mut client = TestClient::new(site);
        assert_eq!(client.get("/later").send().text(), "done");
        assert_eq!(client.elapsed(), Duration::from_secs(3600));
    }

    #[test]
    fn slow_bodies_are_refused() {
        let mut client = TestClient::new(site);
        let chunks = ["one", "two"];
        assert_eq!(client.post("/shout").chunks(chunks, Duration::from_secs(1)).send().text(), "ONETWO");
        assert_eq!(client.post("/shout").chunks(chunks, Duration::from_secs(60)).send().status, 408);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut connection = TestClient::new(site).connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        assert_eq!(connection.response().status, StatusCode::BAD_REQUEST);
        assert!(connection.is_closed());
    }
}
