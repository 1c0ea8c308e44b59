//! Which servers of others take part, what can they do, and with which settings? One table.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Setup, configured, go, lisp, nginx, rust};
use crate::failure::Result;
use crate::workloads::Ask;

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) can: &'static [Ask],
    /// How it was set up, in words.
    pub(crate) about: &'static str,
    /// Builds it or finds it: its program, and its version. An error says why it is left out.
    pub(super) prepare: fn(&Peer, &Path) -> Result<(PathBuf, String)>,
    pub(super) command: fn(&Peer, &Setup<'_>) -> Result<Command>,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Peer {}

use Ask::*;

const CANNED: &[Ask] = &[Health, Json, File];
const BLOCKING: &[Ask] = &[Health, Json, Echo, Slow];
const ASYNCHRONOUS: &[Ask] = &[Health, Json, Echo, Slow, Wait];

/// What the two Go servers are told, and what their handlers do.
const GO: &str = "GOMAXPROCS is the number of cores; /slow blocks its thread by nanosleep(2), /wait parks the goroutine by time.Sleep";

pub(crate) static PEERS: &[Peer] = &[
    Peer {
        name: "nginx",
        can: CANNED,
        about: "a worker for each core, no logs; /health and /json are `return` directives, files from its cache of open files, by sendfile but for 1 KiB",
        prepare: nginx::prepare,
        command: nginx::command,
    },
    Peer {
        name: "h2o",
        can: CANNED,
        about: "a thread for each core, no logs; every answer is a file from its cache of open files",
        prepare: configured::prepare_h2o,
        command: configured::h2o,
    },
    Peer {
        name: "lighttpd",
        can: CANNED,
        about: "a worker for each core, no logs; every answer is a small file",
        prepare: configured::prepare_lighttpd,
        command: configured::lighttpd,
    },
    rust(
        "hyper",
        ASYNCHRONOUS,
        "tokio on a thread for each core; /slow in spawn_blocking, 512 threads at most",
    ),
    rust(
        "axum",
        ASYNCHRONOUS,
        "tokio on a thread for each core; /slow blocks in the handler, as when somebody forgets",
    ),
    rust("axum-blocking", BLOCKING, "the same, /slow in spawn_blocking, 512 threads at most"),
    rust("actix-web", ASYNCHRONOUS, "a worker for each core; /slow in web::block, 512 threads at most"),
    rust("ntex", ASYNCHRONOUS, "a worker for each core, on its own runtime; /slow in spawn_blocking"),
    rust(
        "may_minihttp",
        ASYNCHRONOUS,
        "a worker for each core; /slow blocks it: there is nowhere else to go",
    ),
    rust("tiny_http", BLOCKING, "512 threads take requests"),
    rust("astra", BLOCKING, "512 workers at most"),
    Peer { name: "go-nethttp", can: ASYNCHRONOUS, about: GO, prepare: go::prepare, command: go::command },
    Peer { name: "go-fasthttp", can: ASYNCHRONOUS, about: GO, prepare: go::prepare, command: go::command },
    Peer {
        name: "hunchentoot",
        can: &[Health, Json, Echo, Slow],
        about: "SBCL, a thread for each connection, 512 at most, no logs",
        prepare: lisp::prepare,
        command: lisp::command,
    },
];

const fn rust(name: &'static str, can: &'static [Ask], about: &'static str) -> Peer {
    Peer { name, can, about, prepare: rust::prepare, command: rust::command }
}
