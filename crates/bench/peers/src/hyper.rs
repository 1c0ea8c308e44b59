//! hyper alone: no router, one task for each connection, `spawn_blocking` for blocking calls.

use std::convert::Infallible;
use std::error::Error;
use std::fs;
use std::path::Path;

use ::hyper::body::{Body, Incoming};
use ::hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use ::hyper::server::conn::{http1, http2};
use ::hyper::service::service_fn;
use ::hyper::{Request, Response, StatusCode};
use ::tokio::net::TcpStream;
use ::tokio::{task, time};
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::TlsAcceptor;

use crate::routes;
use crate::tls::acceptor;
use crate::tokio::{listen, run};

pub fn serve(port: u16, workers: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    run(workers, async move {
        let listener = listen(port)?;
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            task::spawn(
                http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
        }
    })?
}

/// Serves the routes and two files of the folder, which are read once: hyper has no files of its own.
pub fn serve_tls(
    port: u16,
    workers: usize,
    tls: &Path,
    files: &Path,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let acceptor = acceptor(tls)?;
    let read = |name: &str| Bytes::from(fs::read(files.join(name)).unwrap_or_default());
    let files = [
        ("/1m.bin", read("1m.bin")),
        ("/16k.bin", read("16k.bin")),
        // It is asked for with ?n=1048576.
        ("/bytes", vec![b'x'; 1 << 20].into()),
    ];
    run(workers, async move {
        let listener = listen(port)?;
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            task::spawn(serve_one(acceptor.clone(), stream, files.clone()));
        }
    })?
}

async fn serve_one(acceptor: TlsAcceptor, stream: TcpStream, files: [(&'static str, Bytes); 3]) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let answer = |request: Request<Incoming>| {
        let file = files.iter().find(|(path, _)| *path == request.uri().path()).map(|(_, file)| file.clone());
        async move {
            match file {
                Some(file) => Ok(typed("application/octet-stream", file)),
                None => answer(request).await,
            }
        }
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (stream, service) = (TokioIo::new(stream), service_fn(answer));
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}

/// A body that is available at once, or that the client is still sending.
type Answer = Response<Either<Full<Bytes>, Incoming>>;

async fn answer(request: Request<Incoming>) -> Result<Answer, Infallible> {
    let time = routes::time(request.uri().query());
    Ok(match request.uri().path() {
        "/health" => text(routes::HEALTH),
        "/json" => typed(routes::JSON, serde_json::to_vec(&routes::MESSAGE).unwrap_or_default()),
        "/echo" if request.body().size_hint().lower() > routes::GATHERED_BYTES_MAX as u64 => {
            let length = request.headers().get(CONTENT_LENGTH).cloned();
            let mut response = Response::new(Either::Right(request.into_body()));
            response.headers_mut().extend(length.map(|length| (CONTENT_LENGTH, length)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(routes::TEXT));
            response
        }
        "/echo" => match request.into_body().collect().await {
            Ok(body) => typed(routes::TEXT, body.to_bytes()),
            Err(_) => status(StatusCode::BAD_REQUEST),
        },
        "/upload" => match count(request.into_body()).await {
            Ok(bytes) => typed(routes::JSON, format!("{{\"bytes\":{bytes},\"files\":[]}}")),
            Err(_) => status(StatusCode::BAD_REQUEST),
        },
        "/slow" => match task::spawn_blocking(move || routes::block(time)).await {
            Ok(said) => text(said),
            Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
        },
        "/wait" => {
            time::sleep(time).await;
            text("waited\n")
        }
        _ => status(StatusCode::NOT_FOUND),
    })
}

/// Counts the bytes of a body, and drops them.
async fn count(mut body: Incoming) -> Result<usize, ::hyper::Error> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(bytes)
}

fn text(body: &'static str) -> Answer {
    typed(routes::TEXT, body)
}

fn typed(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn status(status: StatusCode) -> Answer {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}
