//! What the adapter writes: what the library handed over, and the errors that it reported.

use std::any::type_name;
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex};

use async_nats::jetstream::{self, Message};
use async_nats::HeaderMap;
use serde_json::{json, Map, Value};

/// What a command ends with if not well: an error, and what the library handed over before it.
pub struct Failed {
    pub error: Value,
    pub handed: Option<Value>,
}

impl<E: Error + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed { error: trouble(&error, type_name::<E>()), handed: None }
    }
}

pub type Answer = Result<Value, Failed>;

/// An error as the library tells it; a code of JetStream is that of a cause.
pub fn trouble(error: &(dyn Error + 'static), kind: &str) -> Value {
    let mut output = json!({"text": error.to_string(), "type": kind});
    let mut cause = Some(error);
    while let Some(at) = cause {
        if let Some(api) = at.downcast_ref::<jetstream::Error>() {
            output["code"] = json!(api.error_code().0);
        }
        cause = at.source();
    }
    output
}

/// Of the errors that async-nats boxes.
pub fn boxed(error: async_nats::Error) -> Failed {
    Failed { error: trouble(error.as_ref(), "async_nats::Error"), handed: None }
}

pub fn say(line: Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The messages that the library handed over: the first has the ref 1.
#[derive(Clone, Default)]
pub struct Handed(Arc<Mutex<Vec<Message>>>);

impl Handed {
    pub fn add(&self, message: Message) -> Value {
        let mut headers = Map::new();
        for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
            let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
            headers.insert(name.to_string(), json!(values));
        }
        let data: String = message.payload.iter().map(|octet| char::from(*octet)).collect();
        let mut output = json!({"subject": message.subject.as_str(), "data": data, "headers": headers});
        if let Some(reply) = &message.reply {
            output["reply"] = json!(reply.as_str());
        }
        let mut messages = self.0.lock().unwrap();
        messages.push(message);
        output["ref"] = json!(messages.len());
        output
    }

    pub fn event(&self, subscription: &str, message: Message) {
        say(json!({"event": "message", "subscription": subscription, "message": self.add(message)}));
    }

    pub fn get(&self, number: u64) -> Message {
        self.0.lock().unwrap()[number as usize - 1].clone()
    }
}
