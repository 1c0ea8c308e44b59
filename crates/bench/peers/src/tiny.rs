//! tiny_http: one thread for each call that may block takes requests, and its own threads read the connections.

use std::net::Ipv4Addr;
use std::str::FromStr;
use std::thread;

use tiny_http::{Header, Request, Response, Server};

use crate::routes;

pub fn serve(port: u16, _: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let server = Server::http((Ipv4Addr::LOCALHOST, port))?;
    let json = Header::from_str("Content-Type: application/json").map_err(|()| "no header")?;
    thread::scope(|scope| {
        for _ in 0..routes::BLOCKING_THREADS {
            scope.spawn(|| {
                while let Ok(request) = server.recv() {
                    // A disconnected client is no error of the server.
                    let _ = answer(request, &json);
                }
            });
        }
    });
    Ok(())
}

fn answer(mut request: Request, json: &Header) -> std::io::Result<()> {
    let url = request.url().to_owned();
    let (path, query) = url.split_once('?').map_or((url.as_str(), None), |(path, query)| (path, Some(query)));
    let response = match path {
        "/health" => Response::from_string(routes::HEALTH),
        "/json" => Response::from_data(serde_json::to_vec(&routes::MESSAGE)?).with_header(json.clone()),
        "/slow" | "/wait" => Response::from_string(routes::block(routes::time(query))),
        "/echo" => {
            let mut body = Vec::with_capacity(request.body_length().unwrap_or(0).min(routes::ECHO_BYTES_MAX));
            request.as_reader().read_to_end(&mut body)?;
            // Otherwise it sends large bodies in chunks.
            Response::from_data(body).with_chunked_threshold(usize::MAX)
        }
        _ => Response::from_string("").with_status_code(404),
    };
    request.respond(response)
}
