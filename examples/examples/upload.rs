//! A page that takes files of up to 1 GiB and keeps them in `weft-uploads`, where temporary files are:
//! `cargo run -p weftwork-examples --example upload`, then <http://127.0.0.1:8080>.

use std::path::Path;

use weftwork::middleware::{BodyLimit, Csrf};
use weftwork::prelude::*;

const PAGE: &str = "<!doctype html><title>Upload</title><form method=post enctype=multipart/form-data>\
    <input type=file name=file multiple required> <button>Keep</button></form>";

/// Parts go to disk as they arrive. A file gets its name when all of it is there; else it is removed.
fn site(folder: &Path, req: &mut Request) -> Result<Response> {
    if req.method() != Method::POST {
        return Ok(html(PAGE));
    }
    let mut kept = String::new();
    let mut form = req.multipart()?;
    while let Some(mut part) = form.next_part()? {
        let Some(name) = part.safe_file_name() else { continue };
        let upload = part.save_in(folder)?;
        kept += &format!("{name}: {} bytes\n", upload.bytes());
        upload.persist(folder.join(name))?;
    }
    Ok(text(kept).with_status(StatusCode::CREATED))
}

fn uploads(folder: impl AsRef<Path>) -> impl Handler {
    let folder = folder.as_ref().to_owned();
    (move |req: &mut Request| site(&folder, req)).with(BodyLimit::new(1 << 30)).with(Csrf::new())
}

fn main() -> weftwork::Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let folder = std::env::temp_dir().join("weft-uploads");
    std::fs::create_dir_all(&folder)?;
    Server::bind("127.0.0.1:8080")?.run(uploads(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftwork::TestClient;

    #[test]
    fn a_file_is_kept_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let mut client = TestClient::new(uploads(folder.path()));
        assert!(client.get("/").send().text().contains("multipart/form-data"));
        let form = "--x\r\nContent-Disposition: form-data; name=file; filename=\"../a.txt\"\r\n\r\nhello\r\n--x--\r\n";
        let mut post = |form: &str| {
            client.post("/").header("content-type", "multipart/form-data; boundary=x").body(form).send()
        };
        assert_eq!(post(&form[..form.len() - 12]).status, StatusCode::BAD_REQUEST);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let whole = client.post("/").multipart(&[], &[("file", "../a.txt", b"hello")]).send();
        assert_eq!(whole.text(), "a.txt: 5 bytes\n");
        assert_eq!(std::fs::read(folder.path().join("a.txt")).unwrap(), b"hello");
    }
}
