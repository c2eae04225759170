// An adapter of rabbitmq-client, of its raw channels: see PROTOCOL.md for what it reads and writes.
"use strict";

const { AMQPConnectionError, Connection } = require("rabbitmq-client");
const { bytes, describe, given, release, say, serve, text, trusted } = require("../shared/gate.js");

// Its connections come again, but raw channels do not, and so reconnect is left out. It has no basic.reject.
const FEATURES =
  "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple nack " +
  "qos tx bind blocked";
const RETRY_MS = 100;

let connection = null;
const channels = new Map(); // by number
const confirming = new Set(); // channels
const consumers = new Map(); // subscription: channel, consumer tag
const messages = []; // by ref: the channel of its delivery, what the library handed over

function message(channel, handed) {
  messages.push([channel, handed]);
  const headers = Object.entries(handed.headers ?? {}).map(([name, value]) => [name, [String(value)]]);
  return {
    ref: messages.length,
    data: text(handed.body),
    headers: Object.fromEntries(headers),
    exchange: handed.exchange,
    routing_key: handed.routingKey,
    delivery_tag: Number(handed.deliveryTag),
    redelivered: handed.redelivered,
  };
}

function channelOf(command) {
  const channel = channels.get(command.channel);
  if (channel === undefined) throw new Error(`channel ${command.channel} is closed`);
  return channel;
}

function settle(command, settled) {
  const [channel, { deliveryTag }] = messages[command.ref - 1];
  settled(channel, { deliveryTag, ...given(command, { multiple: "multiple", requeue: "requeue" }) });
}

async function close() {
  const mine = connection;
  connection = null;
  const open = [...channels.values()];
  channels.clear();
  await Promise.all(open.map((channel) => channel.close())); // the library waits for that before it closes
  if (mine !== null) await mine.close();
}

const actions = {
  async connect(command) {
    if (connection !== null) connection.unsafeDestroy(); // the one that was lost, and that would come again
    channels.clear();
    const mine = new Connection({ url: command.url, tls: trusted(command), retryLow: RETRY_MS, retryHigh: RETRY_MS });
    connection = mine;
    mine.on("error", (error) => {
      if (connection === mine) say({ event: error instanceof AMQPConnectionError ? "disconnected" : "error", ...describe(error) });
    });
    mine.on("connection.blocked", (reason) => say({ event: "blocked", text: reason }));
    mine.on("connection.unblocked", () => say({ event: "unblocked" }));
    await mine.onConnect();
  },
  close,
  async reset() {
    consumers.clear();
    messages.length = 0;
    await close();
  },
  async channel(command) {
    const number = command.channel;
    const channel = await connection.acquire({ emitErrorsFromChannel: true });
    channels.set(number, channel);
    channel.on("error", (error) => {
      if (channels.get(number) === channel) say({ event: "channel-closed", channel: number, ...describe(error) });
    });
    channel.on("basic.return", (came) =>
      say({ event: "returned", code: came.replyCode, text: came.replyText, routing_key: came.routingKey, data: text(came.body) }),
    );
    channel.on("basic.cancel", (tag) => {
      for (const [subscription, [mine, known]] of consumers) {
        if (mine === channel && known === tag) say({ event: "ended", subscription, text: "cancelled by the server" });
      }
    });
  },
  async confirm(command) {
    const channel = channelOf(command);
    await channel.confirmSelect();
    confirming.add(channel);
  },
  async declare(command) {
    const names = { durable: "durable", exclusive: "exclusive", auto_delete: "autoDelete", arguments: "arguments" };
    return { queue: (await channelOf(command).queueDeclare({ queue: command.queue, ...given(command, names) })).queue };
  },
  async exchange(command) {
    await channelOf(command).exchangeDeclare(given(command, { exchange: "exchange", type: "type", auto_delete: "autoDelete" }));
  },
  async bind(command) {
    await channelOf(command).queueBind(given(command, { queue: "queue", exchange: "exchange", routing_key: "routingKey" }));
  },
  async publish(command) {
    const channel = channelOf(command);
    const first = command.publish ?? 0;
    const names = { routing_key: "routingKey", mandatory: "mandatory", headers: "headers", message_id: "messageId" };
    const envelope = { exchange: command.exchange ?? "", ...given(command, names) };
    for (let number = first; number < first + (command.count ?? 1); number++) {
      const published = channel.basicPublish(envelope, bytes(command.data + ("count" in command ? `-${number}` : "")));
      if (confirming.has(channel)) {
        published.then(
          () => say({ event: "confirmed", publish: number, ack: true }),
          (error) => say({ event: "confirmed", publish: number, ack: false, text: describe(error).text }),
        );
      } else {
        await published;
      }
    }
  },
  async consume(command) {
    const channel = channelOf(command);
    const { queue, subscription, no_ack: noAck = false } = command;
    const consumerTag = `plumbline.${subscription}.${messages.length}`;
    consumers.set(subscription, [channel, consumerTag]);
    await channel.basicConsume({ queue, noAck, consumerTag }, (handed) => {
      say({ event: "message", subscription, message: message(channel, handed) });
    });
  },
  async cancel(command) {
    const [channel, tag] = consumers.get(command.subscription);
    consumers.delete(command.subscription);
    await channel.basicCancel(tag);
  },
  async get(command) {
    const channel = channelOf(command);
    const handed = await channel.basicGet({ queue: command.queue, noAck: command.no_ack ?? false });
    return { message: handed === undefined ? null : message(channel, handed) };
  },
  async ack(command) {
    settle(command, (channel, fields) => channel.basicAck(fields));
  },
  async nack(command) {
    settle(command, (channel, fields) => channel.basicNack(fields));
  },
  async qos(command) {
    await channelOf(command).basicQos(given(command, { prefetch_count: "prefetchCount", global: "global" }));
  },
  async "tx.select"(command) {
    await channelOf(command).txSelect();
  },
  async "tx.commit"(command) {
    await channelOf(command).txCommit();
  },
  async "tx.rollback"(command) {
    await channelOf(command).txRollback();
  },
};

const library = "rabbitmq-client";
serve({ protocol: "amqp", library, version: release(__dirname, library), features: FEATURES }, actions);
