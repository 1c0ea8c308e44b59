//! A page for uploads of up to 1 GiB, which are saved in `weft-uploads` in the directory for temporary files:
//! `cargo run -p weftwork-examples --example upload`, then <http://127.0.0.1:8080>.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use weftwork::middleware::{BodyLimit, Csrf};
use weftwork::prelude::*;

const PAGE: &str = "<!doctype html><title>Upload</title><form method=post enctype=multipart/form-data>\
    <input type=file name=file multiple required> <button>Keep</button></form>";

/// Parts are written to disk as they arrive. A complete file gets its name, and an incomplete one is removed.
/// Files with the same name do not replace each other.
fn site(folder: &Path, req: &mut Request) -> Result<Response> {
    if req.method() != Method::POST {
        return Ok(html(PAGE));
    }
    let mut saved = String::new();
    let mut form = req.multipart()?;
    while let Some(mut part) = form.next_part()? {
        let Some(mut name) = part.safe_file_name() else { continue };
        // With the number in front, the name has at most 255 bytes, the limit of file systems.
        while name.len() > 200 {
            name.pop();
        }
        let upload = part.save_in(folder)?;
        let saved_as = format!("{}-{name}", number());
        saved += &format!("{saved_as}: {} bytes\n", upload.bytes());
        upload.persist(folder.join(saved_as))?;
    }
    Ok(text(saved).with_status(StatusCode::CREATED))
}

/// No other file has this number, not even from an earlier run.
fn number() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{}", since_1970.as_millis(), COUNT.fetch_add(1, Ordering::Relaxed))
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
        let alike: [(&str, &str, &[u8]); 2] = [("file", "../a.txt", b"hello"), ("file", "a.txt", b"hello")];
        let whole = client.post("/").multipart(&[], &alike).send();
        assert_eq!(whole.text().matches("-a.txt: 5 bytes\n").count(), 2, "{}", whole.text());
        let saved: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(saved.len(), 2);
        assert!(saved.iter().all(|path| std::fs::read(path).unwrap() == b"hello"));
    }
}
