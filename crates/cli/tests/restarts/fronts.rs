//! HAProxy and nginx in front of servers, with the configurations of docs/deploying.md and without retries.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::eventually;

/// A proxy that is running.
pub(crate) struct Front {
    child: Child,
    folder: PathBuf,
    pub(crate) address: String,
}

impl Front {
    /// Starts a proxy with the configuration that `write` makes of its address and its folder.
    fn start(program: &str, write: impl FnOnce(&str, &str) -> String, arguments: &[&str]) -> Option<Front> {
        if Command::new(program).arg("-v").output().is_err() {
            println!("not checked: {program} is not installed");
            return None;
        }
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let name = format!("weft-{program}-{}", address.replace(':', "-"));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let path = folder.to_str().unwrap();
        std::fs::write(folder.join("conf"), write(&address, path)).unwrap();
        let arguments = arguments.iter().map(|argument| argument.replace("FOLDER", path));
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let front = Front { child: command.spawn().unwrap(), folder, address };
        eventually("the proxy listens", || TcpStream::connect(&front.address).is_ok());
        Some(front)
    }

    /// Returns once HAProxy finds this many servers in order.
    pub(crate) fn wait_until_up(&self, count: usize) {
        eventually("the servers are up", || {
            let Ok(mut stats) = UnixStream::connect(self.folder.join("stats")) else { return false };
            let mut text = String::new();
            stats.write_all(b"show stat\n").unwrap();
            stats.read_to_string(&mut text).unwrap();
            text.lines().filter(|line| line.starts_with("servers,s") && line.contains(",UP,")).count()
                == count
        });
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // SIGTERM also ends the workers of nginx.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) struct HaProxy;

impl HaProxy {
    /// Starts it with `more` for each server.
    pub(crate) fn start(servers: &[&str], more: &str) -> Option<Front> {
        let write = |address: &str, folder: &str| {
            let mut text = format!(
                "global\n  stats socket {folder}/stats\n\
                 defaults\n  mode http\n  retries 0\n  timeout connect 2s\n  timeout client 30s\n  timeout server 30s\n\
                 frontend site\n  bind {address}\n  default_backend servers\n\
                 backend servers\n  option httpchk\n  http-check send meth GET uri /ready ver HTTP/1.1 hdr Host weft\n  \
                 default-server check inter 200ms fall 1 rise 1\n"
            );
            for (index, server) in servers.iter().enumerate() {
                writeln!(text, "  server s{index} {server} {more}").unwrap();
            }
            text
        };
        Front::start("haproxy", write, &["-f", "FOLDER/conf"])
    }
}

pub(crate) struct Nginx;

impl Nginx {
    pub(crate) fn start(servers: &[&str]) -> Option<Front> {
        let write = |address: &str, folder: &str| {
            let servers: String =
                servers.iter().map(|server| format!("server {server} max_fails=0; ")).collect();
            format!(
                "daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
                 fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n\
                 upstream site {{ {servers} keepalive 32; keepalive_timeout 500ms; }}\n\
                 server {{ listen {address}; location / {{ proxy_pass http://site; proxy_http_version 1.1;\n\
                 proxy_set_header Connection \"\"; proxy_next_upstream off; }} }} }}\n"
            )
        };
        Front::start("nginx", write, &["-p", "FOLDER", "-c", "FOLDER/conf"])
    }
}
