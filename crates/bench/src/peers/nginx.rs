//! How is nginx set up to be at its best at answering? A worker for each core, no logs, open files kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::table::Peer;
use super::{Setup, version_of};
use crate::failure::{Failure, Result};

/// Room beside the connections for the log, the listener and the like.
const OTHER_FILES: u64 = 100;
/// nginx sets aside memory for each when it starts: enough for the idle workload, and no more.
const CONNECTIONS_MAX: u64 = 65_536;

pub(super) fn prepare(_: &Peer, _: &Path) -> Result<(PathBuf, String)> {
    Ok(("nginx".into(), version_of("nginx", &["-v"])?.trim_start_matches("nginx version: ").to_owned()))
}

pub(super) fn command(_: &Peer, setup: &Setup<'_>) -> Result<Command> {
    let path = setup.scratch.join("nginx.conf");
    fs::write(&path, configuration(setup)).map_err(|error| Failure::step(path.display(), error))?;
    let mut command = Command::new(setup.program);
    // -e: else it first opens the log that it was compiled with.
    command.arg("-p").arg(setup.scratch).arg("-c").arg(path).args(["-e", "stderr"]);
    Ok(command)
}

/// `user root`: a server started by root would drop to somebody who may not read the scratch directory. For others
/// the line means nothing.
fn configuration(setup: &Setup<'_>) -> String {
    let Setup { port, workers, files_max, .. } = *setup;
    // One queue for all lets one worker take most.
    let reuseport = if workers > 1 { " reuseport" } else { "" };
    let (scratch, files) = (setup.scratch.display(), setup.files.display());
    let connections = files_max.saturating_sub(OTHER_FILES).min(CONNECTIONS_MAX);
    format!(
        "daemon off;
user root;
worker_processes {workers};
worker_rlimit_nofile {files_max};
pid {scratch}/nginx.pid;
error_log stderr error;
events {{
    worker_connections {connections};
    multi_accept on;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 3600s;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096{reuseport};
        location = /health {{
            default_type text/plain;
            return 200 \"OK\";
        }}
        location = /json {{
            default_type application/json;
            return 200 '{{\"message\":\"Hello, World!\"}}';
        }}
        location / {{
            root {files};
            sendfile on;
            tcp_nopush on;
            open_file_cache max=100 inactive=1h;
            # Three system calls for five: 0.8 of the CPU of a file this small.
            location = /1k.bin {{
                sendfile off;
            }}
            # Else a range of it waits for 40 ms: half of it fills the buffer of the socket.
            location = /10m.bin {{
                tcp_nopush off;
            }}
        }}
    }}
}}
"
    )
}
