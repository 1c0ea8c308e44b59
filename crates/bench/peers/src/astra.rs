//! astra: blocking handlers on hyper, a pool of threads.

use std::net::Ipv4Addr;

use ::astra::{Body, ConnectionInfo, Request, Response, ResponseBuilder, Server};
use std::io::Read;

use crate::routes;

pub fn serve(port: u16, _: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let server = Server::bind((Ipv4Addr::LOCALHOST, port));
    let server = server.http1_only().http1_pipeline_flush(true).max_workers(routes::BLOCKING_THREADS);
    Ok(server.serve(|request: Request, _: ConnectionInfo| answer(request))?)
}

fn answer(mut request: Request) -> Response {
    let time = routes::time(request.uri().query());
    match request.uri().path() {
        "/health" => typed(routes::TEXT, Body::new(routes::HEALTH)),
        "/json" => typed(routes::JSON, Body::new(serde_json::to_vec(&routes::MESSAGE).unwrap_or_default())),
        "/slow" | "/wait" => typed(routes::TEXT, Body::new(routes::block(time))),
        "/echo" => {
            let mut body = Vec::new();
            match request.body_mut().reader().read_to_end(&mut body) {
                Ok(_) => typed(routes::TEXT, Body::new(body)),
                Err(_) => status(400),
            }
        }
        _ => status(404),
    }
}

fn typed(content_type: &str, body: Body) -> Response {
    ResponseBuilder::new().header("content-type", content_type).body(body).unwrap_or_else(|_| status(500))
}

fn status(code: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code.try_into().unwrap_or_default();
    response
}
