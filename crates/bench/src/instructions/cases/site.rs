//! A whole request in memory, through parser, connection, routes, handler and encoder, and what many routes add.

use std::hint::black_box;

use weftwork::prelude::*;
use weftwork::{Handler, Routes, TestClient, routes};

#[rustfmt::skip]
#[derive(Routes)]
pub(super) enum Ten {
    #[get("/")] Home,
    #[get("/articles")] Articles,
    #[get("/articles/{id}")] Article { id: u64 },
    #[get("/articles/{id}/comments/{comment}")] Comment { id: u64, comment: u64 },
    #[get("/users/{name}")] User { name: String },
    #[get("/search?{q}")] Search { q: String },
    #[get("/files/{*path}")] File { path: String },
    #[get("/about")] About,
    #[get("/contact")] Contact,
    #[get("/health")] Health,
}

/// As many again below each of ten prefixes.
macro_rules! ten_times {
    ($module:ident, $inner:path, $($name:ident $prefix:literal)*) => {
        mod $module {
            use weftwork::prelude::*;
            use $inner as Inner;

            #[derive(Routes)]
            pub(in super::super) enum Site { $(#[nest($prefix)] $name(Inner),)* }
        }
    };
    ($module:ident, $inner:path) => {
        ten_times!($module, $inner, Alpha "/alpha" Beta "/beta" Gamma "/gamma" Delta "/delta" Epsilon "/epsilon"
            Zeta "/zeta" Eta "/eta" Theta "/theta" Iota "/iota" Kappa "/kappa");
    };
}
ten_times!(hundred, super::Ten);
ten_times!(thousand, super::hundred::Site);
pub(super) use hundred::Site as Hundred;
pub(super) use thousand::Site as Thousand;

/// Requests of a lot: what the client in memory costs is the same for 17 as for one, and taken off.
pub(super) const LOT: u32 = 16;

/// The paths of the cases with 10 routes, 100 and 1,000.
pub(super) const PATH_10: &str = "/articles/7/comments/9";
pub(super) const PATH_100: &str = "/kappa/articles/7/comments/9";
pub(super) const PATH_1000: &str = "/kappa/kappa/articles/7/comments/9";

/// No routes: the rest of a request, and what the client in memory costs.
pub(super) fn plain(path: &str, requests: u32, repeats: u32) {
    serve(|_: &mut Request| "OK", path, requests, repeats);
}

pub(super) fn ten(requests: u32, repeats: u32) {
    serve(routes(|_: Ten, _: &mut Request| "OK"), "/health", requests, repeats);
}

/// The same paths in a router that is made while the program runs.
pub(super) fn router_10(repeats: u32) {
    serve(router(&[""]), PATH_10, 1, repeats);
}

pub(super) fn router_1000(repeats: u32) {
    let outer = PREFIXES.iter();
    let prefixes: Vec<String> =
        outer.flat_map(|outer| PREFIXES.iter().map(move |inner| [*outer, *inner].concat())).collect();
    serve(router(&prefixes), PATH_1000, 1, repeats);
}

const PREFIXES: [&str; 10] =
    ["/alpha", "/beta", "/gamma", "/delta", "/epsilon", "/zeta", "/eta", "/theta", "/iota", "/kappa"];

/// The ten paths beneath each prefix.
fn router(prefixes: &[impl AsRef<str>]) -> Router {
    #[rustfmt::skip]
    let paths = [
        "/", "/articles", "/articles/{id}", "/articles/{id}/comments/{comment}", "/users/{name}",
        "/search", "/files/{*path}", "/about", "/contact", "/health",
    ];
    let beneath = prefixes.iter().flat_map(|prefix| paths.map(|path| [prefix.as_ref(), path].concat()));
    beneath.fold(Router::new(), |router, path| router.get(&path, || "OK"))
}

pub(super) fn dispatch<T: Routes>(path: &str, repeats: u32) {
    let handler = routes(|route: T, _: &mut Request| {
        black_box(&route);
        "OK"
    });
    serve(handler, path, 1, repeats);
}

/// Lots of `requests` on one connection, each lot answered before the next.
fn serve(handler: impl Handler, path: &str, requests: u32, repeats: u32) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:20000\r\n\r\n");
    let lot = request.repeat(requests as usize);
    let mut connection = TestClient::new(handler).connect();
    for _ in 0..repeats {
        connection.send(black_box(lot.as_bytes()));
        let answers = connection.received();
        assert!(answers.starts_with(b"HTTP/1.1 200 "), "{path} has a route");
        black_box(answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_a_lot_is_answered() {
        let mut connection = TestClient::new(routes(|_: Ten, _: &mut Request| "OK")).connect();
        connection.send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1 + LOT as usize));
        let answers = String::from_utf8(connection.received()).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 1 + LOT as usize);
    }
}
