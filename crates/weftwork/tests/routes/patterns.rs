//! Tests that the pattern of the route is reported with the patterns of the nests around it.

use weftwork::prelude::*;
use weftwork::{HandlerExt, Next, TestClient};

#[derive(Routes)]
enum Site {
    #[get("/")]
    Home,
    #[get("/search?{q}")]
    #[get("/find/{q}")]
    Search { q: String },
    #[post("/files/{*path}")]
    File { path: String },
    #[nest("/users/{id}")]
    User { id: u64, page: Page },
    #[nest("/more")]
    More(More),
}

#[derive(Routes)]
enum Page {
    #[get("/?{tab}")]
    Overview { tab: Option<String> },
    #[get("/texts/{name}")]
    Text { name: String },
}

#[derive(Routes)]
enum More {
    #[any("/{*all}")]
    All { all: String },
}

fn told(req: &mut Request, next: Next) -> String {
    next.pattern(req).unwrap_or_else(|| "none".into())
}

#[test]
fn patterns_are_listed_without_their_queries() {
    let site = routes(|_: Site, _: &mut Request| -> Response { unreachable!("nobody is called") });
    let other = Router::new().get("/other/{id}", |_: &mut Request| "other");
    let mut client = TestClient::new(site.fallback(other).with(told));
    for (request, wanted) in [
        ("GET /", "/"),
        ("POST /", "none"),
        ("GET /search?q=7", "/search"),
        ("GET /search", "/search"),
        ("GET /find/7", "/find/{q}"),
        ("POST /files/a/b", "/files/{*path}"),
        ("GET /users/7", "/users/{id}"),
        ("GET /users/7/texts/a", "/users/{id}/texts/{name}"),
        ("GET /users/seven", "/users/{id}"),
        ("GET /users/7/x/y", "none"),
        ("PUT /more/a", "/more/{*all}"),
        ("GET /other/7", "/other/{id}"),
        ("GET /nobody", "none"),
    ] {
        let (method, target) = request.split_once(' ').unwrap();
        assert_eq!(client.request(method.parse().unwrap(), target).send().text(), wanted, "{request}");
    }
}
