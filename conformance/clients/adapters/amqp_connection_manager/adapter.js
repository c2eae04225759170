// An adapter of amqp-connection-manager, which connects again for amqplib: see PROTOCOL.md for what it reads and writes.
"use strict";

const manager = require("amqp-connection-manager");
const { bytes, describe, given, release, say, serve, text, trusted } = require("../shared/gate.js");

// What its documentation has users declare in a setup function is declared again.
const FEATURES =
  "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple nack bind " +
  "blocked reconnect reconnect.topology";
const RECONNECT_S = 0.2;
const NEVER_S = 3600;

let connection = null;
const channels = new Map(); // by number: a wrapper, which outlives its channels
const confirming = new Set(); // wrappers
const consumers = new Map(); // subscription: wrapper, consumer tag
const messages = []; // by ref: the wrapper of its delivery, what it handed over

function message(wrapper, handed) {
  messages.push([wrapper, handed]);
  const headers = Object.entries(handed.properties.headers ?? {}).map(([name, value]) => [name, [String(value)]]);
  return {
    ref: messages.length,
    data: text(handed.content),
    headers: Object.fromEntries(headers),
    exchange: handed.fields.exchange,
    routing_key: handed.fields.routingKey,
    delivery_tag: Number(handed.fields.deliveryTag),
    redelivered: handed.fields.redelivered,
  };
}

function wrapperOf(command) {
  const wrapper = channels.get(command.channel);
  if (wrapper === undefined) throw new Error(`channel ${command.channel} is closed`);
  return wrapper;
}

async function open(number, confirm) {
  const mine = connection;
  const wrapper = connection.createChannel({
    confirm,
    setup: async (channel) => {
      channel.on("error", (error) => {
        if (connection === mine && mine.isConnected()) say({ event: "channel-closed", channel: number, ...describe(error) });
      });
      channel.on("return", ({ fields, content }) =>
        say({ event: "returned", code: fields.replyCode, text: fields.replyText, routing_key: fields.routingKey, data: text(content) }),
      );
    },
  });
  wrapper.on("error", (error) => say({ event: "error", ...describe(error) }));
  channels.set(number, wrapper);
  if (confirm) confirming.add(wrapper);
  await wrapper.waitForConnect();
}

async function close() {
  const mine = connection;
  connection = null;
  channels.clear();
  if (mine !== null) await mine.close();
}

// Does it now, and again after each time that the wrapper has a new channel.
async function setUp(command, declare) {
  let failure = null;
  let declared = null;
  await wrapperOf(command).addSetup(async (channel) => {
    try {
      declared = await declare(channel);
    } catch (error) {
      failure = error;
    }
  });
  if (failure !== null) throw failure;
  return declared;
}

const actions = {
  async connect(command) {
    await close();
    const seconds = command.reconnect ? RECONNECT_S : NEVER_S;
    const mine = manager.connect([command.url], {
      reconnectTimeInSeconds: seconds,
      heartbeatIntervalInSeconds: 0,
      connectionOptions: trusted(command),
    });
    connection = mine;
    let connected = false;
    mine.on("connect", () => {
      if (connected && connection === mine) say({ event: "reconnected" });
      connected = true;
    });
    mine.on("disconnect", ({ err }) => {
      if (connection === mine) say({ event: "disconnected", ...(err ? describe(err) : {}) });
    });
    mine.on("blocked", ({ reason }) => say({ event: "blocked", text: reason }));
    mine.on("unblocked", () => say({ event: "unblocked" }));
    await new Promise((resolve, reject) => {
      mine.once("connect", resolve);
      mine.once("connectFailed", ({ err }) => reject(err));
    });
  },
  close,
  async reset() {
    consumers.clear();
    messages.length = 0;
    await close();
  },
  async channel(command) {
    await open(command.channel, false);
  },
  async confirm(command) {
    // it decides on confirms when a channel is opened
    await wrapperOf(command).close();
    await open(command.channel, true);
  },
  async declare(command) {
    const names = { durable: "durable", exclusive: "exclusive", auto_delete: "autoDelete", arguments: "arguments" };
    const options = { durable: false, ...given(command, names) }; // the library declares durable by default
    return { queue: (await setUp(command, (channel) => channel.assertQueue(command.queue, options))).queue };
  },
  async exchange(command) {
    const options = { durable: false, ...given(command, { auto_delete: "autoDelete" }) };
    await setUp(command, (channel) => channel.assertExchange(command.exchange, command.type, options));
  },
  async bind(command) {
    await setUp(command, (channel) => channel.bindQueue(command.queue, command.exchange, command.routing_key));
  },
  async publish(command) {
    const wrapper = wrapperOf(command);
    const first = command.publish ?? 0;
    const options = given(command, { mandatory: "mandatory", headers: "headers", message_id: "messageId" });
    for (let number = first; number < first + (command.count ?? 1); number++) {
      const data = bytes(command.data + ("count" in command ? `-${number}` : ""));
      const published = wrapper.publish(command.exchange ?? "", command.routing_key, data, options);
      if (confirming.has(wrapper)) {
        published.then(
          () => say({ event: "confirmed", publish: number, ack: true }),
          (error) => say({ event: "confirmed", publish: number, ack: false, text: error.message }),
        );
      } else {
        published.catch((error) => say({ event: "error", ...describe(error) })); // it may wait for another connection
      }
    }
  },
  async consume(command) {
    const wrapper = wrapperOf(command);
    const { queue, subscription } = command;
    const handedOver = (handed) => say({ event: "message", subscription, message: message(wrapper, handed) });
    const { consumerTag } = await wrapper.consume(queue, handedOver, { noAck: command.no_ack ?? false });
    consumers.set(subscription, [wrapper, consumerTag]);
  },
  async cancel(command) {
    const [wrapper, tag] = consumers.get(command.subscription);
    consumers.delete(command.subscription);
    await wrapper.cancel(tag);
  },
  async get(command) {
    const wrapper = wrapperOf(command);
    const handed = await wrapper.get(command.queue, { noAck: command.no_ack ?? false });
    return { message: handed === false ? null : message(wrapper, handed) };
  },
  async ack(command) {
    const [wrapper, handed] = messages[command.ref - 1];
    wrapper.ack(handed, command.multiple ?? false);
  },
  async nack(command) {
    const [wrapper, handed] = messages[command.ref - 1];
    wrapper.nack(handed, command.multiple ?? false, command.requeue ?? true);
  },
};

const library = "amqp-connection-manager";
serve({ protocol: "amqp", library, version: release(__dirname, library), features: FEATURES }, actions);
