//! A program whose `main` is async, on a runtime of one thread.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use weftwork::prelude::*;
use weftwork_tokio::Tokio;

const CHILD: &str = "WEFTWORK_TEST_ASYNC_MAIN";

#[tokio::main(flavor = "current_thread")]
async fn program() -> weftwork::Result<()> {
    let tokio = Tokio::current()?;
    let slow = |State(tokio): State<Tokio>| {
        println!("asked");
        tokio.when(|| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            "slow"
        })
    };
    let running = Server::bind("127.0.0.1:0")?.start(Router::new().get("/", slow).state(tokio))?;
    let address = running.local_addr();
    let stopped = running.stopped();
    println!("at {}", address.unwrap());
    let report = stopped.await?;
    println!("cut {}", report.cut);
    Ok(())
}

#[test]
fn it_serves_until_a_signal_and_finishes_what_it_has() {
    if std::env::var_os(CHILD).is_some() {
        return program().unwrap();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "it_serves_until_a_signal_and_finishes_what_it_has", "--nocapture"])
        .env(CHILD, "1");
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address =
        lines.find_map(|line| line.split_once("at 127.0.0.1:").map(|(_, port)| format!("127.0.0.1:{port}")));
    let mut client = TcpStream::connect(address.unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(lines.any(|line| line.ends_with("asked")));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("slow"), "{answer}");
    assert!(lines.any(|line| line == "cut 0"));
    assert!(child.wait().unwrap().success());
}
