//! may_minihttp: a worker for each core, a coroutine for each connection. It has no way to move a blocking call
//! elsewhere, so /slow blocks the worker.

use std::io::{self, Read};
use std::net::Ipv4Addr;

use ::may::{config, coroutine};
use may_minihttp::{HttpServer, HttpService, Request, Response};

use crate::routes;

#[derive(Clone)]
struct Service;

impl HttpService for Service {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        let (path, query) = match request.path().split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (request.path(), None),
        };
        response.header("Content-Type: text/plain; charset=utf-8");
        match path {
            "/health" => response.body(routes::HEALTH),
            "/json" => response.body_vec(serde_json::to_vec(&routes::MESSAGE)?),
            "/slow" => response.body(routes::block(routes::time(query))),
            "/wait" => {
                coroutine::sleep(routes::time(query));
                response.body("waited\n");
            }
            "/echo" => {
                let mut body = Vec::new();
                request.body().read_to_end(&mut body)?;
                response.body_vec(body);
            }
            _ => {
                response.status_code(404, "Not Found");
            }
        }
        Ok(())
    }
}

pub fn serve(port: u16, workers: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // The bench pins the process.
    config().set_workers(workers).set_stack_size(0x2000).set_worker_pin(false);
    let server = HttpServer(Service).start((Ipv4Addr::LOCALHOST, port))?;
    server.join().map_err(|_| "the server panicked".into())
}
