//! Errors of handlers: the client gets 500 without a reason, and the log has the request and every cause.
//! `cargo run -p weftwork-examples --example errors`, then `curl -i localhost:8080/orders/7`, and `/stock`.

use anyhow::Context;
use weftwork::Error;
use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/orders/{id}")]
    Order { id: u64 },
    #[get("/stock")]
    Stock,
}

/// An ordinary error type, which `?` converts.
fn order(id: u64) -> std::io::Result<String> {
    std::fs::read_to_string(format!("no/such/folder/{id}"))
}

/// An `anyhow` error, with a context of that crate.
fn stock() -> anyhow::Result<u32> {
    let text = std::fs::read_to_string("no/such/file").context("cannot count the stock")?;
    Ok(text.trim().parse()?)
}

fn site(route: Site, _: &mut Request) -> Result<String> {
    Ok(match route {
        // The client is told what it did wrong.
        Site::Order { id: 0 } => Err(Problem::new(StatusCode::NOT_FOUND).detail("orders begin with 1"))?,
        Site::Order { id } => order(id)?,
        Site::Stock => stock().map_err(Error::boxed)?.to_string(),
    })
}

fn main() -> weftwork::Result<()> {
    // Without a logger nothing is shown. Any logger for the crate `log` works.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    Server::bind("127.0.0.1:8080")?.run(routes(site))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftwork::TestClient;

    #[test]
    fn clients_get_only_public_details() {
        let mut client = TestClient::new(routes(site));
        let answer = client.get("/orders/0").send();
        assert!(answer.status == 404 && answer.text().contains("orders begin with 1"), "{answer:?}");
        for path in ["/orders/7", "/stock"] {
            let answer = client.get(path).send();
            assert!(answer.status == 500 && !answer.text().contains("no/such"), "{answer:?}");
        }
    }

    #[test]
    fn the_log_gets_all_details() {
        let error = Error::boxed(stock().unwrap_err()).to_string();
        assert!(error.starts_with("cannot count the stock: ") && error.contains("os error 2"), "{error}");
    }
}
