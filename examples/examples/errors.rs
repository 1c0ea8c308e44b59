//! Errors of handlers: the log has the request and every cause, and the client gets no more than you say.
//! `cargo run -p weftwork-examples --example errors`, then `curl -i localhost:8080/orders/7`, `/orders/0`, `/stock` and `/sale`.

use std::fmt;

use weftwork::middleware::HandleError;
use weftwork::prelude::*;

/// `?` takes every error. The client gets 500 without a reason. A `Problem` tells it what it did wrong.
fn order(Path(id): Path<u64>) -> Result<String> {
    if id == 0 {
        Err(Problem::new(StatusCode::NOT_FOUND).detail("orders begin with 1"))?;
    }
    let file = format!("no/such/folder/{id}");
    std::fs::read_to_string(file).with_context(|| format!("cannot read order {id}"))
}

/// With the feature `anyhow`, handlers return the result of that crate.
fn stock() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("no/such/file").context("cannot count the stock")?;
    let count: u32 = text.trim().parse()?;
    anyhow::ensure!(count < 1000, "{count} boxes do not fit into the store");
    Ok(count.to_string())
}

/// An error with a response of its own. `HandleError` below makes `?` keep that response.
#[derive(Debug)]
struct SoldOut;

impl fmt::Display for SoldOut {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the tea is sold out")
    }
}

impl std::error::Error for SoldOut {}

impl IntoResponse for SoldOut {
    fn into_response(self) -> Response {
        (StatusCode::CONFLICT, "sold out\n").into_response()
    }
}

fn sale() -> Result<String> {
    Err(SoldOut)?
}

fn site() -> impl Handler {
    let site = Router::new().get("/orders/{id}", order).get("/stock", stock).get("/sale", sale);
    site.with(HandleError::new(SoldOut::into_response))
}

fn main() -> weftwork::Result<()> {
    // Any logger for the crate `log` works. Without it, errors go to stderr.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    Server::bind("127.0.0.1:8080")?.run(site())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftwork::TestClient;

    #[test]
    fn clients_get_only_public_details() {
        let mut client = TestClient::new(site());
        for (path, status, text) in [
            ("/orders/0", 404, "orders begin with 1"),
            ("/sale", 409, "sold out"),
            ("/orders/7", 500, "something went wrong on the server"),
            ("/stock", 500, "something went wrong on the server"),
        ] {
            let answer = client.get(path).send();
            assert!(answer.status == status && answer.text().contains(text), "{answer:?}");
            assert!(!answer.text().contains("no/such"), "{answer:?}");
        }
    }

    #[test]
    fn the_log_gets_all_details() {
        let error = order(Path(7)).unwrap_err().to_string();
        assert!(error.starts_with("cannot read order 7: ") && error.contains("os error 2"), "{error}");
        let error = stock().unwrap_err().to_string();
        assert!(error.starts_with("cannot count the stock: ") && error.contains("os error 2"), "{error}");
    }
}
