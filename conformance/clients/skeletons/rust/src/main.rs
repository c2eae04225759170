//! An adapter for plumbline gate: replace what says "my library". For each command of the adapter protocol that the
//! library supports, add an arm of `act` and its feature. `say` writes events, too.

use std::io::{self, BufRead, Write};

use serde_json::{json, Value};

const PROTOCOL: &str = "PROTOCOL";
const FEATURES: [&str; 0] = [];

fn say(line: &Value) {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").expect("stdout is open");
    output.flush().expect("stdout is open");
}

/// The fields of `ok`, what the library reports as an error, or None for a command that is not supported.
fn act(command: &Value) -> Option<Result<Value, Box<dyn std::error::Error>>> {
    match command["do"].as_str().unwrap_or_default() {
        "connect" => Some(Ok(json!({}))), // my library connects to command["url"]
        "close" => Some(Ok(json!({}))),
        _ => None,
    }
}

fn main() {
    say(&json!({
        "hello": "plumbline.adapter/1", "protocol": PROTOCOL, "library": "my library", "version": "0",
        "language": "rust", "features": FEATURES,
    }));
    for line in io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
        let id = &command["id"];
        say(&match act(&command) {
            None => json!({"id": id, "error": {"text": "unknown command", "type": "unsupported"}}),
            Some(Ok(fields)) => json!({"id": id, "ok": fields}),
            Some(Err(error)) => json!({"id": id, "error": {"text": error.to_string()}}),
        });
    }
}
