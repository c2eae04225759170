//! An adapter of async-nats: see PROTOCOL.md for what it reads and writes.

mod output;

use std::any::type_name;
use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{pull, push, Consumer};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind, Context, Message};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Request, Subscriber};
use futures_util::{Stream, StreamExt};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use output::{boxed, say, trouble, Answer, Failed, Handed};

const FEATURES: [&str; 21] = [
    "publish",
    "request",
    "subscribe",
    "unsubscribe.after",
    "js.publish",
    "fetch",
    "fetch.no_wait",
    "fetch.heartbeat",
    "consume",
    "push",
    "ack",
    "ack.nak",
    "ack.nak.delay",
    "ack.progress",
    "ack.term",
    "ack.next",
    "ack.sync",
    "reconnect",
    "ping",
    "lame-duck",
    "drain",
];
const WAIT: Duration = Duration::from_secs(2);
const CONNECT_WAIT: Duration = Duration::from_secs(8); // for a busy machine

/// A command for the task that reads a core subscription: after how many messages it ends, 0 is at once.
type Unsubscribe = (u64, oneshot::Sender<Result<(), async_nats::UnsubscribeError>>);

struct Connection {
    client: Client,
    js: Context,
    closed: watch::Receiver<bool>,
    pulls: HashMap<(String, String), Consumer<pull::Config>>,
}

#[derive(Default)]
struct Adapter {
    connection: Option<Connection>,
    handed: Handed,
    subscriptions: HashMap<String, mpsc::Sender<Unsubscribe>>,
    iterators: HashMap<String, JoinHandle<()>>,
}

fn text(command: &Value, name: &str) -> String {
    command[name].as_str().unwrap_or_default().to_owned()
}

fn number(command: &Value, name: &str) -> u64 {
    command[name].as_u64().unwrap_or_default()
}

fn span(command: &Value, name: &str) -> Option<Duration> {
    command[name].as_u64().filter(|given| *given > 0).map(Duration::from_millis)
}

fn data(command: &Value) -> bytes::Bytes {
    text(command, "data").chars().map(|one| one as u8).collect::<Vec<u8>>().into()
}

fn headers(command: &Value) -> Option<HeaderMap> {
    let mut made = HeaderMap::new();
    for (name, given) in command["headers"].as_object()? {
        let values = given.as_array().cloned().unwrap_or_else(|| vec![given.clone()]);
        for value in values.iter().filter_map(Value::as_str) {
            made.append(name.as_str(), value);
        }
    }
    Some(made).filter(|made| !made.is_empty())
}

/// Reads one core subscription until it ends.
async fn listen(
    name: String,
    mut subscriber: Subscriber,
    handed: Handed,
    js: Context,
    mut asked: mpsc::Receiver<Unsubscribe>,
) {
    let mut ended_by_user = false;
    loop {
        tokio::select! {
            biased;
            Some((after, done)) = asked.recv() => {
                ended_by_user = true;
                let _ = done.send(match after {
                    0 => subscriber.unsubscribe().await,
                    _ => subscriber.unsubscribe_after(after).await,
                });
            }
            next = subscriber.next() => match next {
                Some(message) => handed.event(&name, Message { message, context: js.clone() }),
                None => break,
            }
        }
    }
    if !ended_by_user {
        say(json!({"event": "ended", "subscription": name}));
    }
}

/// Reads what a JetStream consumer's iterator gives until it ends.
async fn iterate<E: Error + 'static>(
    name: String,
    mut messages: impl Stream<Item = Result<Message, E>> + Unpin,
    handed: Handed,
) {
    while let Some(next) = messages.next().await {
        match next {
            Ok(message) => handed.event(&name, message),
            Err(error) => {
                let mut output = trouble(&error, type_name::<E>());
                output["event"] = json!("error");
                output["subscription"] = json!(name);
                say(output);
            }
        }
    }
    say(json!({"event": "ended", "subscription": name}));
}

/// async-nats always reconnects (0 of `max_reconnects` means for ever): a delay that never ends is what
/// there is to switch it off.
fn once() -> impl Fn(usize) -> Duration + Send + Sync + 'static {
    let connected = AtomicBool::new(false);
    move |_| match connected.swap(true, Ordering::SeqCst) {
        true => Duration::from_secs(24 * 3600),
        false => Duration::ZERO,
    }
}

async fn connect(command: &Value) -> Result<Connection, Failed> {
    let (over, closed) = watch::channel(false);
    let over = Arc::new(over);
    let connected = Arc::new(AtomicBool::new(false));
    let mut options = ConnectOptions::new().connection_timeout(CONNECT_WAIT).event_callback(move |event| {
        let (over, connected) = (over.clone(), connected.clone());
        async move {
            let name = match event {
                Event::Connected if !connected.swap(true, Ordering::SeqCst) => return,
                Event::Connected => "reconnected",
                Event::Disconnected => "disconnected",
                Event::Closed => "closed",
                Event::LameDuckMode => "lame-duck",
                Event::Draining => return,
                _ => "error",
            };
            say(json!({"event": name, "text": event.to_string(), "type": "async_nats::Event"}));
            if name == "closed" {
                let _ = over.send(true);
            }
        }
    });
    if command["reconnect"] != true {
        options = options.reconnect_delay_callback(once());
    } else if let Some(wait) = span(command, "reconnect_wait_ms") {
        options = options.reconnect_delay_callback(move |attempts| if attempts > 1 { wait } else { Duration::ZERO });
    }
    if let Some(interval) = span(command, "ping_ms") {
        options = options.ping_interval(interval); // two may be unanswered, always
    }
    let client = options.connect(text(command, "url")).await?;
    Ok(Connection { js: jetstream::new(client.clone()), client, closed, pulls: HashMap::new() })
}

impl Connection {
    /// `Client::flush` only writes; what it has not is a round trip, so a request without an answer follows.
    async fn flush(&self) -> Answer {
        self.client.flush().await?;
        let request = Request::new().timeout(Some(WAIT));
        match self.client.send_request("plumbline.flush", request).await {
            Err(error) if error.kind() != async_nats::RequestErrorKind::NoResponders => Err(error.into()),
            _ => Ok(json!({})),
        }
    }

    /// There is no close: to drain is how a user ends a connection.
    async fn close(&mut self) -> Answer {
        self.client.drain().await?;
        tokio::time::timeout(WAIT, self.closed.wait_for(|over| *over)).await??;
        Ok(json!({}))
    }

    async fn publish(&self, command: &Value) -> Answer {
        let (subject, reply) = (text(command, "subject"), text(command, "reply"));
        match (reply.is_empty(), headers(command)) {
            (true, None) => self.client.publish(subject, data(command)).await?,
            (true, Some(headers)) => self.client.publish_with_headers(subject, headers, data(command)).await?,
            (false, None) => self.client.publish_with_reply(subject, reply, data(command)).await?,
            (false, Some(headers)) => {
                self.client.publish_with_reply_and_headers(subject, reply, headers, data(command)).await?
            }
        }
        Ok(json!({}))
    }

    async fn request(&self, command: &Value) -> Result<async_nats::Message, Failed> {
        let mut request = Request::new().payload(data(command)).timeout(span(command, "timeout_ms").or(Some(WAIT)));
        if let Some(headers) = headers(command) {
            request = request.headers(headers);
        }
        Ok(self.client.send_request(text(command, "subject"), request).await?)
    }

    async fn js_publish(&self, command: &Value) -> Answer {
        let mut made = PublishMessage::build().payload(data(command));
        if let Some(headers) = headers(command) {
            made = made.headers(headers);
        }
        let id = text(command, "msg_id");
        if !id.is_empty() {
            made = made.message_id(id);
        }
        let mut js = self.js.clone();
        js.set_timeout(span(command, "timeout_ms").unwrap_or(WAIT));
        let output = js.send_publish(text(command, "subject"), made).await?.await?;
        Ok(json!({"stream": output.stream, "seq": output.sequence, "duplicate": output.duplicate}))
    }

    /// A consumer is looked up once, when it is first asked for.
    async fn pull(&mut self, command: &Value) -> Result<&Consumer<pull::Config>, Failed> {
        let key = (text(command, "stream"), text(command, "consumer"));
        if !self.pulls.contains_key(&key) {
            let found = self.js.get_consumer_from_stream(&key.1, &key.0).await?;
            self.pulls.insert(key.clone(), found);
        }
        Ok(&self.pulls[&key])
    }

    async fn fetch(&mut self, command: &Value, handed: &Handed) -> Answer {
        let consumer = self.pull(command).await?;
        let (batch, heartbeat) = (number(command, "batch") as usize, span(command, "heartbeat_ms").unwrap_or_default());
        let expires = span(command, "expires_ms");
        let mut messages = if command["no_wait"] == true {
            let fetch = consumer.fetch().max_messages(batch).heartbeat(heartbeat);
            expires.into_iter().fold(fetch, |fetch, expires| fetch.expires(expires)).messages().await?
        } else {
            let asked = consumer.batch().max_messages(batch).heartbeat(heartbeat);
            expires.into_iter().fold(asked, |asked, expires| asked.expires(expires)).messages().await?
        };
        let (mut found, mut failed) = (Vec::new(), None);
        while let Some(next) = messages.next().await {
            match next {
                Ok(message) => found.push(handed.add(message)),
                Err(error) => failed = Some(boxed(error)),
            }
        }
        let output = json!({"messages": found});
        match failed {
            Some(failed) => Err(Failed { handed: Some(output), ..failed }),
            None => Ok(output),
        }
    }

    async fn consume(&mut self, command: &Value) -> Result<pull::Stream, Failed> {
        let mut made = self.pull(command).await?.stream();
        if number(command, "batch") > 0 {
            made = made.max_messages_per_batch(number(command, "batch") as usize);
        }
        if let Some(expires) = span(command, "expires_ms") {
            made = made.expires(expires);
        }
        if let Some(heartbeat) = span(command, "heartbeat_ms") {
            made = made.heartbeat(heartbeat);
        }
        Ok(made.messages().await?)
    }

    async fn js_subscribe(&self, command: &Value) -> Result<push::Messages, Failed> {
        let (stream, consumer) = (text(command, "stream"), text(command, "consumer"));
        let found: Consumer<push::Config> = self.js.get_consumer_from_stream(consumer, stream).await?;
        Ok(found.messages().await?)
    }
}

async fn ack(message: Message, command: &Value) -> Answer {
    let kind = match command["kind"].as_str() {
        Some("nak") => AckKind::Nak(span(command, "delay_ms")),
        Some("progress") => AckKind::Progress,
        Some("term") => AckKind::Term,
        Some("next") => AckKind::Next,
        _ => AckKind::Ack,
    };
    message.ack_with(kind).await.map_err(boxed)?;
    Ok(json!({}))
}

async fn ack_sync(mut message: Message, command: &Value) -> Answer {
    message.context.set_timeout(span(command, "timeout_ms").unwrap_or(WAIT));
    message.double_ack().await.map_err(boxed)?;
    Ok(json!({}))
}

impl Adapter {
    async fn answer(&mut self, command: &Value) -> Answer {
        let name = text(command, "subscription");
        let handed = self.handed.clone();
        if command["do"] == "connect" {
            self.connection = Some(connect(command).await?);
            return Ok(json!({}));
        }
        let Some(on) = &mut self.connection else {
            return Err(Failed { error: json!({"text": "not connected", "type": "adapter"}), handed: None });
        };
        match command["do"].as_str().unwrap_or_default() {
            "flush" => return on.flush().await,
            "close" => return on.close().await,
            "drain" => on.client.drain().await?,
            "publish" => return on.publish(command).await,
            "request" => {
                let message = on.request(command).await?;
                return Ok(json!({"message": handed.add(Message { message, context: on.js.clone() })}));
            }
            "subscribe" => {
                let (subject, queue) = (text(command, "subject"), text(command, "queue"));
                let subscriber = match queue.is_empty() {
                    true => on.client.subscribe(subject).await?,
                    false => on.client.queue_subscribe(subject, queue).await?,
                };
                let (ask, asked) = mpsc::channel(1);
                tokio::spawn(listen(name.clone(), subscriber, handed, on.js.clone(), asked));
                self.subscriptions.insert(name, ask);
            }
            "unsubscribe" => {
                let (done, ended) = oneshot::channel();
                self.subscriptions[&name].send((number(command, "after"), done)).await?;
                ended.await??;
            }
            "js.publish" => return on.js_publish(command).await,
            "fetch" => return on.fetch(command, &handed).await,
            "consume" => {
                let messages = on.consume(command).await?;
                self.iterators.insert(name.clone(), tokio::spawn(iterate(name, messages, handed)));
            }
            "js.subscribe" => {
                let messages = on.js_subscribe(command).await?;
                self.iterators.insert(name.clone(), tokio::spawn(iterate(name, messages, handed)));
            }
            "stop" => {
                if let Some(task) = self.iterators.remove(&name) {
                    task.abort(); // which drops the iterator: the way to stop it
                    let _ = task.await;
                }
            }
            "ack" => return ack(handed.get(number(command, "ref")), command).await,
            "ack.sync" => return ack_sync(handed.get(number(command, "ref")), command).await,
            _ => return Err(Failed { error: json!({"text": "unknown command", "type": "unsupported"}), handed: None }),
        }
        Ok(json!({}))
    }
}

/// The release of async-nats that this program was built with.
fn released() -> &'static str {
    let locked = include_str!("../Cargo.lock").split("name = \"async-nats\"\nversion = \"").nth(1);
    locked.and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    say(json!({
        "hello": "plumbline.adapter/1", "protocol": "nats", "library": "async-nats", "version": released(),
        "language": "rust", "features": FEATURES,
    }));
    let mut adapter = Adapter::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let mut output = json!({"id": command["id"]});
        match adapter.answer(&command).await {
            Ok(ok) => output["ok"] = ok,
            Err(failed) => {
                output["error"] = failed.error;
                if let Some(handed) = failed.handed {
                    output["ok"] = handed;
                }
            }
        }
        say(output);
    }
    std::process::exit(0)
}
