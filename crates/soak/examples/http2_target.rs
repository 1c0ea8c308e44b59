//! A server for the attacks and the upload of `scripts/http2`: HTTP/2 in clear, and 1 MiB from memory.

use std::time::Duration;

use weftwork::prelude::*;
use weftwork::{Bytes, quick};

fn main() -> weftwork::Result<()> {
    let big = Bytes::from(vec![b'x'; 1 << 20]);
    let site = Router::new()
        .get("/health", quick(|_: &mut Request| "OK"))
        .get("/big", move || Response::bytes(big.clone()))
        .get("/slow", || {
            std::thread::sleep(Duration::from_secs(1));
            "slow"
        })
        .post("/upload", |req: &mut Request| -> Result<String> {
            let mut body = req.body().limit(u64::MAX);
            Ok(std::io::copy(&mut body, &mut std::io::sink())?.to_string())
        });
    let server = Server::bind("127.0.0.1:0")?.settings(|settings| settings.http2_cleartext(true));
    let metrics = weftwork::middleware::Metrics::new().server(server.status());
    let running = server.admin("127.0.0.1:0", metrics.page())?.start(site)?;
    println!("{} {}", running.addresses()[0], running.admin_addresses()[0]);
    // The script ends the process by closing its input.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
