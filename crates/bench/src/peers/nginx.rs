//! How is nginx set up to be at its best at answering /health? One worker, no logs, nothing read from disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};

/// Room beside the connections for the log, the listener and the like.
const OTHER_FILES: u64 = 100;
/// nginx sets aside memory for each when it starts: enough for the idle workload, and no more.
const CONNECTIONS_MAX: u64 = 65_536;

pub(super) fn is_installed() -> bool {
    let version = Command::new("nginx").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

pub(super) fn command(port: u16, scratch: &Path, files_max: u64) -> Result<Command> {
    let path = scratch.join("nginx.conf");
    fs::write(&path, configuration(port, scratch, files_max))
        .map_err(|error| Failure::step(path.display(), error))?;
    let mut command = Command::new("nginx");
    // -e: else it first opens the log that it was compiled with.
    command.arg("-p").arg(scratch).arg("-c").arg(path).args(["-e", "stderr"]);
    Ok(command)
}

fn configuration(port: u16, scratch: &Path, files_max: u64) -> String {
    let scratch = scratch.display();
    let connections = files_max.saturating_sub(OTHER_FILES).min(CONNECTIONS_MAX);
    format!(
        "daemon off;
worker_processes 1;
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
        listen 127.0.0.1:{port} backlog=4096;
        location = /health {{
            default_type text/plain;
            return 200 \"OK\";
        }}
    }}
}}
"
    )
}
