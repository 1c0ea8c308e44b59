//! ntex on its own runtime: one worker, `spawn_blocking` for what blocks.

use std::net::Ipv4Addr;

use ::ntex::util::Bytes;
use ::ntex::web::{self, App, HttpRequest, HttpResponse};
use ::ntex::{rt, time};

use crate::routes;

pub fn serve(port: u16) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let system = rt::System::new("ntex", ::ntex::rt::DefaultRuntime);
    Ok(system.block_on(run(port))?)
}

async fn run(port: u16) -> std::io::Result<()> {
    let app = async || {
        App::new()
            .state(web::types::PayloadConfig::new(routes::ECHO_BYTES_MAX))
            .route("/health", web::get().to(async || routes::HEALTH))
            .route("/json", web::get().to(async || HttpResponse::Ok().json(&routes::MESSAGE)))
            .route("/echo", web::post().to(async |body: Bytes| body))
            .route("/slow", web::get().to(slow))
            .route("/wait", web::get().to(wait))
    };
    web::server(app).workers(1).backlog(4096).maxconn(100_000).bind((Ipv4Addr::LOCALHOST, port))?.run().await
}

async fn slow(request: HttpRequest) -> &'static str {
    let time = routes::time(Some(request.query_string()));
    rt::spawn_blocking(move || routes::block(time)).await.unwrap_or("failed\n")
}

async fn wait(request: HttpRequest) -> &'static str {
    time::sleep(routes::time(Some(request.query_string()))).await;
    "waited\n"
}
