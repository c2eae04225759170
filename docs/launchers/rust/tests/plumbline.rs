//! Starts Plumbline for a test in Rust: a broker, with or without a defect, or a proxy that injects faults.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A running plumbline: it is stopped when this is dropped.
struct Plumbline {
    child: Child,
    url: String,
}

impl Plumbline {
    /// Runs it, and waits for its first line, which begins with its URL.
    fn start(arguments: &[&str]) -> Plumbline {
        let program = std::env::var("PLUMBLINE").unwrap_or_else(|_| "plumbline".into());
        let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().expect("plumbline");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split(' ').next().unwrap_or_default().trim().to_string();
        let started = Plumbline { child, url };
        assert!(!started.url.is_empty(), "plumbline {arguments:?} did not start");
        started
    }
}

impl Drop for Plumbline {
    fn drop(&mut self) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.child.wait();
    }
}

/// This is where your client would be: sends a PING, and returns that many lines of the server.
fn ask(url: &str, count: usize) -> Vec<String> {
    let mut stream = TcpStream::connect(url.trim_start_matches("nats://")).unwrap();
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").unwrap();
    BufReader::new(stream).lines().take(count).map(Result::unwrap).collect()
}

#[test]
fn a_broker() {
    let broker = Plumbline::start(&["broker", "nats", "-js", "-p", "-1"]);
    let lines = ask(&broker.url, 2);
    assert!(lines[0].contains("\"proto\":1"), "{lines:?}");
    assert_eq!(lines[1], "PONG");
}

#[test]
fn a_broker_with_a_defect() {
    let broker = Plumbline::start(&["broker", "nats", "-p", "-1", "--defect", "info-has-proto-0"]);
    let lines = ask(&broker.url, 2);
    assert!(lines[0].contains("\"proto\":0"), "{lines:?}");
}

#[test]
fn a_proxy_with_a_fault() {
    let broker = Plumbline::start(&["broker", "nats", "-p", "-1"]);
    let folder = std::env::temp_dir().join(format!("captures-{}", std::process::id()));
    let captures = folder.to_str().unwrap();
    let fault = "duplicate PONG";
    let proxy =
        Plumbline::start(&["record", &broker.url, "--listen", "127.0.0.1:0", "-o", captures, "--fault", fault]);
    assert_eq!(ask(&proxy.url, 3)[1..], ["PONG", "PONG"]);
}
