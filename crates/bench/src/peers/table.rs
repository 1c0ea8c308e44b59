//! The servers of others: what each can do, how it is built, started and configured. One table.

use crate::workloads::Ask::{self, *};

use super::build::{Build, LISP};

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) can: &'static [Ask],
    /// Its configuration, in words.
    pub(crate) about: &'static str,
    /// The rules of HTTP/1.1 that it breaks, of those that the tests ask.
    pub(crate) breaks: &'static [&'static str],
    pub(super) build: Build,
    /// Its arguments. What stands between at signs is filled in.
    pub(super) arguments: &'static [&'static str],
    /// Its configuration file, written to `@config@`. Filled in likewise.
    pub(super) configuration: &'static str,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Peer {}

/// The rule that decides whether a server takes part if every connection is to be closed. A server that breaks it is never first.
pub(crate) const IGNORES_CLOSE: &str = "ignores Connection: close";
pub(super) const KEEPS_1_0: &str = "keeps an HTTP/1.0 connection that nobody asked to keep";
pub(super) const NO_HOST: &str = "takes a request without Host";
pub(super) const HEAD_BODY: &str = "answers HEAD with a body";
pub(super) const TWO_LENGTHS: &str = "takes two lengths (smuggling)";
pub(super) const NO_CHUNKED: &str = "cannot read a chunked body";
pub(super) const TWO_FRAMINGS: &str = "goes on after two framings of one body (smuggling)";

const CANNED: &[Ask] = &[Health, Json, File];
const BLOCKING: &[Ask] = &[Health, Json, Echo, Slow];
const ASYNCHRONOUS: &[Ask] = &[Health, Json, Echo, Slow, Wait];

const MAY_BREAKS: &[&str] =
    &[IGNORES_CLOSE, KEEPS_1_0, NO_HOST, HEAD_BODY, TWO_LENGTHS, NO_CHUNKED, TWO_FRAMINGS];

#[rustfmt::skip]
pub(crate) static PEERS: &[Peer] = &[
    Peer {
        name: "nginx",
        can: CANNED,
        about: "a worker for each core, no logs; /health and /json are `return` directives, files from its cache of open files, by sendfile but for 1 KiB; over TLS a shared session cache and tickets",
        breaks: &[],
        build: Build::Installed("-v"),
        // -e: else it first opens the log that it was compiled with.
        arguments: &["-p", "@scratch@", "-c", "@config@", "-e", "stderr"],
        configuration: include_str!("../../peers/nginx.conf"),
    },
    Peer {
        name: "h2o",
        can: CANNED,
        about: "a thread for each core, no logs; every answer is a file from its cache of open files; over TLS sessions in memory and tickets, the key in the same process; it gives no new ticket with a resumed TLS 1.3 session, so that every third one is full and counts as an error",
        breaks: &[NO_HOST, TWO_LENGTHS],
        build: Build::Installed("--version"),
        arguments: &["-m", "worker", "-c", "@config@"],
        configuration: include_str!("../../peers/h2o.conf"),
    },
    Peer {
        name: "lighttpd",
        can: CANNED,
        about: "a worker for each core, no logs; every answer is a small file",
        breaks: &[],
        build: Build::Installed("-v"),
        arguments: &["-D", "-f", "@config@"],
        configuration: include_str!("../../peers/lighttpd.conf"),
    },
    Peer {
        name: "nghttpd",
        can: &[],
        about: "HTTP/2 alone: a thread for each core, every answer a file from its cache",
        breaks: &[],
        build: Build::Installed("--version"),
        arguments: &["--address=127.0.0.1", "-d", "@files@", "-n", "@workers@", "@port@", "@tls_folder@/key.pem", "@tls_folder@/cert.pem"],
        configuration: "",
    },
    rust("hyper", ASYNCHRONOUS, &[NO_HOST], "tokio on a thread for each core; /slow in spawn_blocking, 512 threads at most; over TLS tokio-rustls with aws-lc-rs and tickets, a file from memory"),
    rust("axum", ASYNCHRONOUS, &[NO_HOST], "tokio on a thread for each core; /slow blocks in the handler, as if the author forgot"),
    rust("axum-blocking", BLOCKING, &[NO_HOST], "the same, /slow in spawn_blocking, 512 threads at most"),
    rust("actix-web", ASYNCHRONOUS, &[], "a worker for each core; /slow in web::block, 512 threads at most"),
    rust("ntex", ASYNCHRONOUS, &[NO_HOST], "a worker for each core, on its own runtime; /slow in spawn_blocking"),
    rust("may_minihttp", ASYNCHRONOUS, MAY_BREAKS, "a worker for each core; /slow blocks it: there is nowhere else to go"),
    rust("tiny_http", BLOCKING, &[NO_HOST, TWO_LENGTHS, TWO_FRAMINGS], "512 threads take requests"),
    rust("astra", BLOCKING, &[NO_HOST, NO_CHUNKED], "512 workers at most"),
    go("go-nethttp", &[TWO_FRAMINGS]),
    go("go-fasthttp", &[NO_HOST, TWO_FRAMINGS]),
    Peer {
        name: "hunchentoot",
        can: BLOCKING,
        about: "SBCL, a thread for each connection, 512 at most, no logs",
        breaks: &[NO_HOST, TWO_LENGTHS, TWO_FRAMINGS],
        build: Build::Lisp,
        arguments: LISP,
        configuration: "",
    },
];

const fn rust(
    name: &'static str,
    can: &'static [Ask],
    breaks: &'static [&'static str],
    about: &'static str,
) -> Peer {
    let arguments = &["@name@", "@port@", "@workers@"];
    Peer { name, can, about, breaks, build: Build::Rust, arguments, configuration: "" }
}

const fn go(name: &'static str, breaks: &'static [&'static str]) -> Peer {
    let about = "GOMAXPROCS is the number of cores; /slow blocks its thread by nanosleep(2), /wait parks the goroutine by time.Sleep; over TLS crypto/tls with tickets, files by http.FileServer";
    Peer {
        name,
        can: ASYNCHRONOUS,
        about,
        breaks,
        build: Build::Go,
        arguments: &["@port@"],
        configuration: "",
    }
}
