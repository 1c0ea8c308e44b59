//! Files from a folder, files embedded in the program, and a file that a handler chooses:
//! `cargo run -p weftwork-examples --example files FOLDER`, then open http://localhost:8080.

use weftwork::http::HeaderValue;
use weftwork::prelude::*;
use weftwork::{Files, embedded, files};

/// To embed a file, use `include_bytes!("../site/index.html")`.
static SITE: &[(&str, &[u8])] = &[
    ("index.html", b"<!doctype html><link rel=stylesheet href=/style.css><h1><a href=/files/>Files</a></h1>"),
    ("style.css", b"h1 { font: 2rem system-ui; text-align: center }"),
];

struct Site {
    pages: Files,
    folder: Files,
}

impl Site {
    fn new(folder: &str) -> Result<Site> {
        let an_hour = HeaderValue::from_static("max-age=3600");
        Ok(Site {
            pages: embedded(SITE).cache_control(an_hour),
            folder: files(folder)?.under("/files").listing(true),
        })
    }

    fn answer(&self, req: &mut Request) -> Response {
        match req.path().split('/').nth(1) {
            Some("files") => self.folder.call(req),
            // The same rules apply to a name from elsewhere, here from a query, as in /get?name=a.txt. The
            // browser saves the file instead of showing it.
            Some("get") => match req.query_value("name").map(|name| name.into_owned()) {
                Some(name) => self.folder.send(req, &name).with_attachment(&name),
                None => Response::text("which file?\n").with_status(StatusCode::BAD_REQUEST),
            },
            _ => self.pages.call(req),
        }
    }
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let site = Site::new(&folder)?;
    Server::bind("127.0.0.1:8080")?.run(move |req: &mut Request| site.answer(req))
}

#[test]
fn pages_folder_and_choice() {
    let site = Site::new(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mut client = weftwork::TestClient::new(move |req: &mut Request| site.answer(req));
    assert!(client.get("/").send().text().contains("/files/"));
    assert!(client.get("/files/").send().text().contains("Cargo.toml"));
    let saved = client.get("/get?name=Cargo.toml").send();
    assert_eq!(saved.status, StatusCode::OK);
    assert_eq!(saved.header("content-disposition"), Some("attachment; filename=\"Cargo.toml\""));
    assert_eq!(client.get("/get?name=../Cargo.toml").send().status, StatusCode::NOT_FOUND);
}
