//! An adapter of lapin: see PROTOCOL.md for what it reads and writes.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::{BasicReturnMessage, Delivery};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
    BasicQosOptions, BasicRejectOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{
    Acker, BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, Error, ErrorKind, Event,
    ExchangeKind, PublisherConfirm,
};
use serde_json::{json, Map, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;

const FEATURES: &str = "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume \
                        get ack ack.multiple nack reject qos tx bind blocked reconnect reconnect.topology";
const LOOK_EVERY: Duration = Duration::from_millis(50);
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

type Answer = Result<Value, Value>;

#[derive(Clone, Default)]
struct Handed(Arc<Mutex<Vec<Acker>>>);

impl Handed {
    /// A message that lapin handed over; the first has the ref 1.
    fn add(&self, delivery: Delivery) -> Value {
        let mut headers = Map::new();
        for (name, value) in delivery.properties.headers().iter().flat_map(|table| table.inner()) {
            headers.insert(name.to_string(), json!([shown(value)]));
        }
        let mut output = json!({
            "data": latin1(&delivery.data), "headers": headers, "exchange": delivery.exchange.as_str(),
            "routing_key": delivery.routing_key.as_str(), "delivery_tag": delivery.delivery_tag,
            "redelivered": delivery.redelivered,
        });
        let mut ackers = self.0.lock().unwrap();
        ackers.push(delivery.acker);
        output["ref"] = json!(ackers.len());
        output
    }

    fn get(&self, command: &Value) -> Acker {
        self.0.lock().unwrap()[number(command, "ref") as usize - 1].clone()
    }
}

type Channels = Arc<Mutex<HashMap<u64, Channel>>>;

struct Connected {
    connection: Connection,
    reporting: JoinHandle<()>,
}

#[derive(Default)]
struct Adapter {
    connected: Option<Connected>,
    channels: Channels,
    consumers: HashMap<String, (Channel, Consumer, JoinHandle<()>)>,
    handed: Handed,
    tasks: Vec<JoinHandle<()>>,
}

fn say(line: Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|octet| char::from(*octet)).collect()
}

fn shown(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(text) => latin1(text.as_bytes()),
        AMQPValue::ShortString(text) => text.to_string(),
        other => format!("{other:?}"),
    }
}

fn text(command: &Value, name: &str) -> String {
    command[name].as_str().unwrap_or_default().to_owned()
}

fn number(command: &Value, name: &str) -> u64 {
    command[name].as_u64().unwrap_or_default()
}

fn flag(command: &Value, name: &str) -> bool {
    command[name] == true
}

fn requeue(command: &Value) -> bool {
    command["requeue"] != false
}

fn table(given: &Value) -> FieldTable {
    let mut made = FieldTable::default();
    for (name, value) in given.as_object().into_iter().flatten() {
        let value = match value {
            Value::Number(number) => AMQPValue::LongLongInt(number.as_i64().unwrap_or_default()),
            Value::Bool(truth) => AMQPValue::Boolean(*truth),
            other => AMQPValue::LongString(other.as_str().unwrap_or_default().into()),
        };
        made.insert(name.as_str().into(), value);
    }
    made
}

/// An error as lapin has it; the number is that of the server.
fn described(error: &Error) -> Value {
    match error.kind() {
        ErrorKind::ProtocolError(amqp) => {
            json!({"text": amqp.get_message().as_str(), "type": "ProtocolError", "code": amqp.get_id()})
        }
        _ => json!({"text": error.to_string(), "type": "lapin::Error"}),
    }
}

fn failed(error: Error) -> Value {
    described(&error)
}

fn report_event(name: &str, mut fields: Value) {
    fields["event"] = json!(name);
    say(fields);
}

fn returned(message: &BasicReturnMessage, publish: Option<u64>) {
    let mut event = json!({
        "code": message.reply_code, "text": message.reply_text.as_str(),
        "routing_key": message.delivery.routing_key.as_str(), "data": latin1(&message.delivery.data),
    });
    if let Some(publish) = publish {
        event["publish"] = json!(publish);
    }
    report_event("returned", event);
}

/// Reports what happens to a connection and to its channels; an error of a channel does not say of which.
async fn report(connection: impl futures_util::Stream<Item = Event>, channels: Channels) {
    let mut events = Box::pin(connection);
    let mut disconnected = false;
    while let Some(event) = events.next().await {
        match event {
            Event::Connected if disconnected => {
                disconnected = false;
                report_event("reconnected", json!({}));
            }
            Event::ConnectionBlocked(reason) => report_event("blocked", json!({"text": reason})),
            Event::ConnectionUnblocked => report_event("unblocked", json!({})),
            Event::Error(error) if error.is_amqp_soft_error() => {
                let ended: Vec<u64> = {
                    let known = channels.lock().unwrap();
                    known.iter().filter(|(_, channel)| !channel.status().connected()).map(|(n, _)| *n).collect()
                };
                for number in ended {
                    let mut fields = described(&error);
                    fields["channel"] = json!(number);
                    report_event("channel-closed", fields);
                }
            }
            Event::Error(error) => {
                disconnected = true;
                report_event("disconnected", described(&error));
            }
            _ => {}
        }
    }
}

/// Reports the messages that came back on a channel without confirms: lapin keeps them until its user asks.
async fn look(channel: Channel) {
    while !channel.status().confirm() {
        match channel.wait_for_confirms().await {
            Ok(messages) => messages.iter().for_each(|message| returned(message, None)),
            Err(_) => return,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn settle(publish: u64, confirm: PublisherConfirm) {
    let (ack, message) = match confirm.await {
        Ok(Confirmation::Ack(message)) => (true, message),
        Ok(Confirmation::Nack(message)) => (false, message),
        Ok(Confirmation::NotRequested) => return,
        Err(error) => {
            return say(json!({"event": "confirmed", "publish": publish, "ack": false, "text": error.to_string()}))
        }
    };
    if let Some(message) = message {
        returned(&message, Some(publish));
    }
    say(json!({"event": "confirmed", "publish": publish, "ack": ack}));
}

/// Hands over what comes for a consumer, as the example of lapin for connections that recover does it.
async fn consume(subscription: String, channel: Channel, mut consumer: Consumer, handed: Handed) {
    while let Some(next) = consumer.next().await {
        match next {
            Ok(delivery) => {
                say(json!({"event": "message", "subscription": subscription, "message": handed.add(delivery)}))
            }
            Err(error) => {
                if channel.wait_for_recovery(error).await.is_err() {
                    return; // the connection or the channel has ended, which is reported
                }
            }
        }
    }
    if channel.status().connected() {
        say(json!({"event": "ended", "subscription": subscription, "text": "the stream of deliveries has ended"}));
    }
}

impl Adapter {
    async fn connect(&mut self, command: &Value) -> Answer {
        let mut options = ConnectionProperties::default();
        if flag(command, "reconnect") {
            options = options.enable_auto_recover().configure_backoff(|backoff| {
                backoff.with_min_delay(RECONNECT_WAIT).with_max_delay(RECONNECT_WAIT).without_max_times()
            });
        }
        let authorities = command["tls_ca"].as_str().map(std::fs::read_to_string).transpose();
        let cert_chain = authorities.map_err(|error| json!({"text": error.to_string(), "type": "std::io::Error"}))?;
        let tls = OwnedTLSConfig { identity: None, cert_chain };
        let runtime = lapin::runtime::default_runtime().map_err(failed)?;
        let url = text(command, "url");
        let connection = Connection::connect_with_config(&url, options, tls, runtime).await.map_err(failed)?;
        self.channels = Channels::default();
        let reporting = tokio::spawn(report(connection.events_listener(), self.channels.clone()));
        self.connected = Some(Connected { connection, reporting });
        Ok(json!({}))
    }

    async fn close(&mut self) -> Answer {
        let Some(ending) = self.connected.take() else { return Ok(json!({})) };
        ending.reporting.abort();
        for (_, (_, _, task)) in self.consumers.drain() {
            task.abort();
        }
        ending.connection.close(200, "closed by its user".into()).await.map_err(failed)?;
        Ok(json!({}))
    }

    fn channel(&self, command: &Value) -> Result<Channel, Value> {
        let known = self.channels.lock().unwrap();
        let none = || json!({"text": "there is no such channel", "type": "adapter"});
        known.get(&number(command, "channel")).cloned().ok_or_else(none)
    }

    async fn publish(&mut self, command: &Value) -> Answer {
        let channel = self.channel(command)?;
        let first = number(command, "publish");
        for publish in first..first + command["count"].as_u64().unwrap_or(1) {
            let suffix = command["count"].as_u64().map(|_| format!("-{publish}")).unwrap_or_default();
            let data: Vec<u8> = (text(command, "data") + &suffix).chars().map(|one| one as u8).collect();
            let mut properties = BasicProperties::default();
            if command["headers"].is_object() {
                properties = properties.with_headers(table(&command["headers"]));
            }
            if let Some(id) = command["message_id"].as_str() {
                properties = properties.with_message_id(id.into());
            }
            let options = BasicPublishOptions { mandatory: flag(command, "mandatory"), ..Default::default() };
            let (exchange, key) = (text(command, "exchange").into(), text(command, "routing_key").into());
            let confirm = channel.basic_publish(exchange, key, options, &data, properties).await.map_err(failed)?;
            if channel.status().confirm() {
                self.tasks.push(tokio::spawn(settle(publish, confirm)));
            }
        }
        Ok(json!({}))
    }

    async fn answer(&mut self, command: &Value) -> Answer {
        match command["do"].as_str().unwrap_or_default() {
            "connect" => return self.connect(command).await,
            "close" => return self.close().await,
            "reset" => {
                self.tasks.drain(..).for_each(|task| task.abort());
                self.handed = Handed::default();
                let _ = self.close().await;
            }
            "channel" => {
                let Some(on) = &self.connected else {
                    return Err(json!({"text": "not connected", "type": "adapter"}));
                };
                let opened = on.connection.create_channel().await.map_err(failed)?;
                self.tasks.push(tokio::spawn(look(opened.clone())));
                self.channels.lock().unwrap().insert(number(command, "channel"), opened);
            }
            "publish" => return self.publish(command).await,
            "cancel" => {
                if let Some((channel, consumer, task)) = self.consumers.remove(&text(command, "subscription")) {
                    channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await.map_err(failed)?;
                    task.abort();
                }
            }
            "ack" => {
                let options = BasicAckOptions { multiple: flag(command, "multiple") };
                self.handed.get(command).ack(options).await.map_err(failed)?;
            }
            "nack" => {
                let options = BasicNackOptions { multiple: flag(command, "multiple"), requeue: requeue(command) };
                self.handed.get(command).nack(options).await.map_err(failed)?;
            }
            "reject" => {
                let options = BasicRejectOptions { requeue: requeue(command) };
                self.handed.get(command).reject(options).await.map_err(failed)?;
            }
            _ => return self.answer_on(self.channel(command)?, command).await,
        }
        Ok(json!({}))
    }

    async fn answer_on(&mut self, channel: Channel, command: &Value) -> Answer {
        let queue = text(command, "queue");
        match command["do"].as_str().unwrap_or_default() {
            "declare" => {
                let options = QueueDeclareOptions {
                    durable: flag(command, "durable"),
                    exclusive: flag(command, "exclusive"),
                    auto_delete: flag(command, "auto_delete"),
                    ..Default::default()
                };
                let arguments = table(&command["arguments"]);
                let declared = channel.queue_declare(queue.into(), options, arguments).await.map_err(failed)?;
                return Ok(json!({"queue": declared.name().as_str()}));
            }
            "exchange" => {
                let options =
                    ExchangeDeclareOptions { auto_delete: flag(command, "auto_delete"), ..Default::default() };
                let kind = ExchangeKind::Custom(text(command, "type"));
                let name = text(command, "exchange").into();
                channel.exchange_declare(name, kind, options, FieldTable::default()).await.map_err(failed)?;
            }
            "bind" => {
                let (exchange, key) = (text(command, "exchange").into(), text(command, "routing_key").into());
                let options = QueueBindOptions::default();
                channel
                    .queue_bind(queue.into(), exchange, key, options, FieldTable::default())
                    .await
                    .map_err(failed)?;
            }
            "confirm" => channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(failed)?,
            "consume" => {
                let options = BasicConsumeOptions { no_ack: flag(command, "no_ack"), ..Default::default() };
                let made = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await;
                let consumer = made.map_err(failed)?;
                let name = text(command, "subscription");
                let reading = consume(name.clone(), channel.clone(), consumer.clone(), self.handed.clone());
                self.consumers.insert(name, (channel, consumer, tokio::spawn(reading)));
            }
            "get" => {
                let options = BasicGetOptions { no_ack: flag(command, "no_ack") };
                let got = channel.basic_get(queue.into(), options).await.map_err(failed)?;
                return Ok(json!({"message": got.map(|message| self.handed.add(message.delivery))}));
            }
            "qos" => {
                let options = BasicQosOptions { global: flag(command, "global") };
                let count = number(command, "prefetch_count") as u16;
                channel.basic_qos(count, options).await.map_err(failed)?;
            }
            "tx.select" => channel.tx_select().await.map_err(failed)?,
            "tx.commit" => channel.tx_commit().await.map_err(failed)?,
            "tx.rollback" => channel.tx_rollback().await.map_err(failed)?,
            _ => return Err(json!({"text": "unknown command", "type": "unsupported"})),
        }
        Ok(json!({}))
    }
}

/// The release of lapin that this program was built with.
fn released() -> &'static str {
    let locked = include_str!("../Cargo.lock").split("name = \"lapin\"\nversion = \"").nth(1);
    locked.and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let features: Vec<&str> = FEATURES.split_whitespace().collect();
    say(json!({
        "hello": "plumbline.adapter/1", "protocol": "amqp", "library": "lapin", "version": released(),
        "language": "rust", "features": features,
    }));
    let mut adapter = Adapter::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let mut output = json!({"id": command["id"]});
        match adapter.answer(&command).await {
            Ok(ok) => output["ok"] = ok,
            Err(error) => output["error"] = error,
        }
        say(output);
    }
    std::process::exit(0)
}
