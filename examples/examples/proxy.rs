//! A proxy to another server, for example a language model whose tokens arrive one by one:
//! `cargo run -p weftwork-examples --example proxy -- http://127.0.0.1:11434`, then <http://127.0.0.1:8080>.

use std::time::Duration;

use weftwork::Proxy;
use weftwork::prelude::*;

/// Forwards everything under `/api` and answers the rest.
fn site(url: &str) -> Result<impl Handler> {
    let api = Proxy::to(url)?.strip_prefix("/api").response_timeout(Duration::from_secs(300));
    Ok(move |req: &mut Request| match req.path() {
        "/" => text("this server answers; ask for /api\n"),
        _ => api.call(req),
    })
}

fn main() -> weftwork::Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:11434".into());
    Server::bind("127.0.0.1:8080")?.run(site(&url)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftwork::TestClient;

    #[test]
    fn the_other_server_answers() {
        let behind = |req: &mut Request| format!("{} {}", req.method(), req.path());
        let running = Server::bind("127.0.0.1:0").unwrap().start(behind).unwrap();
        let url = format!("http://{}", running.local_addr().unwrap());
        let mut client = TestClient::new(site(&url).unwrap());
        assert_eq!(client.get("/api/generate").send().text(), "GET /generate");
        assert!(client.get("/").send().text().starts_with("this server"));
        assert_eq!(client.get("/other").send().status, StatusCode::NOT_FOUND);
        drop(running);
        assert_eq!(client.get("/api/generate").send().status, StatusCode::BAD_GATEWAY);
    }
}
