// What the adapters of nats.js share, of its releases 2 and 3: see PROTOCOL.md for what they read and write. What differs is a
// `library`, which each adapter makes of its packages.
"use strict";

const { bytes, describe, say, serve, text, trusted } = require("./gate.js");

const LEAST_EXPIRES_MS = 1000; // nats.js refuses less

let library = null;
let connection = null;
const messages = []; // by ref
const subscriptions = new Map(); // by name: what ends it
const consumers = new Map(); // by stream and name
const services = new Map(); // by the name in commands
let entries = 1_000_000; // refs of what stores hand over: no command names them
let resets = 0;

// Writes events until the next reset.
function teller() {
  const mine = resets;
  return (event) => {
    if (mine === resets) say(event);
  };
}

function handed(message) {
  messages.push(message);
  const found = message.headers ? [...message.headers].map(([name, values]) => [name, [].concat(values)]) : [];
  return {
    ref: messages.length,
    subject: message.subject,
    reply: message.reply ?? "",
    data: text(message.data),
    headers: Object.fromEntries(found),
  };
}

function headersOf(command, more = {}) {
  const given = { ...(command.headers ?? {}), ...more };
  if (Object.keys(given).length === 0) return undefined;
  const made = library.headers();
  for (const [name, values] of Object.entries(given)) {
    for (const value of [].concat(values)) made.append(name, value);
  }
  return made;
}

// A value or an object that a store handed over. One that is not there is null in nats.js.
function stored(found, subject, data = new Uint8Array()) {
  if (found === null) throw new Error("not found");
  entries += 1;
  return { ref: entries, subject, data: text(data) };
}

// What was promised, or an error after so long: nats.js awaits a PONG for ever, on a connection that is lost too.
function within(promised, milliseconds) {
  let timer = null;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("flush has not ended")), milliseconds);
  });
  return Promise.race([promised, late]).finally(() => clearTimeout(timer));
}

const bucketOf = (command) => library.bucket(connection, command.bucket);
const storeOf = (command) => library.store(connection, command.bucket);

async function consumerOf({ stream, consumer }) {
  const key = `${stream} ${consumer}`;
  if (!consumers.has(key)) consumers.set(key, await library.jetstream(connection).consumers.get(stream, consumer));
  return consumers.get(key);
}

const REPORTED_STATUSES = ["heartbeats_missed", "consumer_not_found", "stream_not_found", "consumer_deleted", "no_responders"];

async function listen(subscription, running) {
  const tell = teller();
  subscriptions.set(subscription, () => running.close());
  (async () => {
    for await (const status of await running.status()) {
      if (REPORTED_STATUSES.includes(status.type)) tell({ event: "error", subscription, text: status.type, type: status.type });
    }
  })();
  (async () => {
    try {
      for await (const message of running) tell({ event: "message", subscription, message: handed(message) });
    } catch (error) {
      tell({ event: "error", subscription, ...describe(error) });
    }
  })();
}

async function watch(mine) {
  const tell = teller();
  for await (const status of mine.status()) {
    if (status.type === "disconnect") tell({ event: "disconnected" });
    else if (status.type === "reconnect") tell({ event: "reconnected" });
    else if (status.type === "ldm") tell({ event: "lame-duck" });
    else if (status.type === "error") tell({ event: "error", ...library.failure(status) });
  }
}

const actions = {
  async connect(command) {
    const options = { servers: command.url, reconnect: command.reconnect ?? false };
    if (command.reconnect) {
      const wait = command.reconnect_wait_ms ?? 100;
      Object.assign(options, { maxReconnectAttempts: -1, reconnectTimeWait: wait, reconnectJitter: wait });
    }
    if (command.ping_ms) Object.assign(options, { pingInterval: command.ping_ms, maxPingOut: command.pings_out });
    if ("tls_ca" in command) options.tls = trusted(command);
    const tell = teller();
    const mine = await library.connect(options);
    connection = mine;
    consumers.clear();
    watch(mine);
    mine.closed().then((error) => {
      if (connection === mine) tell({ event: "closed", ...(error ? { text: error.message } : {}) });
    });
  },
  async flush() {
    await connection.flush();
  },
  async drain() {
    await connection.drain();
  },
  async close() {
    const mine = connection;
    connection = null;
    await mine.close();
  },
  async reset() {
    const mine = connection;
    connection = null;
    resets += 1;
    messages.length = 0;
    for (const known of [subscriptions, consumers, services]) known.clear();
    if (mine !== null) await mine.close();
  },
  async publish(command) {
    connection.publish(command.subject, bytes(command.data), { reply: command.reply, headers: headersOf(command) });
    if (command.flush) await within(connection.flush(), command.timeout_ms);
  },
  async request(command) {
    const options = { timeout: command.timeout_ms ?? 1000, headers: headersOf(command) };
    return { message: handed(await connection.request(command.subject, bytes(command.data), options)) };
  },
  async subscribe(command) {
    const subscription = command.subscription;
    const tell = teller();
    const callback = (error, message) => {
      if (error) tell({ event: "error", subscription, ...describe(error) });
      else tell({ event: "message", subscription, message: handed(message) });
    };
    const made = connection.subscribe(command.subject, { queue: command.queue, callback });
    subscriptions.set(subscription, (after) => made.unsubscribe(after));
  },
  async unsubscribe(command) {
    subscriptions.get(command.subscription)(command.after);
  },
  async stop(command) {
    await subscriptions.get(command.subscription)();
  },
  async "js.create"(command) {
    const manager = await library.jetstreamManager(connection);
    if (command.stream) await manager.streams.add(command.stream);
    if (command.consumer) {
      const { stream_name: stream, ...configuration } = command.consumer;
      await manager.consumers.add(stream, configuration);
    }
  },
  async "js.publish"(command) {
    const options = { timeout: command.timeout_ms ?? 1000, headers: headersOf(command) };
    if (command.msg_id) options.msgID = command.msg_id;
    const acknowledged = await library.jetstream(connection).publish(command.subject, bytes(command.data), options);
    return { stream: acknowledged.stream, seq: acknowledged.seq, duplicate: acknowledged.duplicate };
  },
  async fetch(command) {
    const consumer = await consumerOf(command);
    const expires = Math.max(command.expires_ms, LEAST_EXPIRES_MS);
    const options = { max_messages: command.batch, expires };
    if (command.heartbeat_ms) options.idle_heartbeat = command.heartbeat_ms;
    const got = [];
    try {
      for await (const message of await consumer.fetch(options)) got.push(handed(message));
    } catch (error) {
      return { both: { ok: { messages: got }, error: describe(error) } };
    }
    return { messages: got };
  },
  async consume(command) {
    const consumer = await consumerOf(command);
    const options = {};
    if (command.batch) options.max_messages = command.batch;
    if (command.expires_ms) options.expires = Math.max(command.expires_ms, LEAST_EXPIRES_MS);
    if (command.heartbeat_ms) options.idle_heartbeat = command.heartbeat_ms;
    await listen(command.subscription, await consumer.consume(options));
  },
  async "js.subscribe"(command) {
    await listen(command.subscription, await library.push(connection, command));
  },
  async ordered(command) {
    const consumer = await library.ordered(connection, command);
    const heartbeat = command.heartbeat_ms;
    await listen(command.subscription, await consumer.consume({ idle_heartbeat: heartbeat, expires: 3 * heartbeat }));
  },
  async "kv.put"(command) {
    return { seq: await (await bucketOf(command)).put(command.key, bytes(command.data)) };
  },
  async "kv.create"(command) {
    return { seq: await (await bucketOf(command)).create(command.key, bytes(command.data)) };
  },
  async "kv.update"(command) {
    return { seq: await (await bucketOf(command)).update(command.key, bytes(command.data), command.revision) };
  },
  async "kv.delete"(command) {
    await (await bucketOf(command)).delete(command.key);
  },
  async "kv.purge"(command) {
    await (await bucketOf(command)).purge(command.key);
  },
  async "kv.get"(command) {
    const entry = await (await bucketOf(command)).get(command.key);
    return { message: stored(entry, command.key, entry?.value) };
  },
  async "obj.create"(command) {
    await library.createStore(connection, command.bucket);
  },
  async "obj.put"(command) {
    const options = command.chunk_bytes ? { options: { max_chunk_size: command.chunk_bytes } } : {};
    await (await storeOf(command)).putBlob({ name: command.name, ...options }, bytes(command.data));
  },
  async "obj.get"(command) {
    const data = await (await storeOf(command)).getBlob(command.name);
    return { message: stored(data, command.name, data ?? undefined) };
  },
  async "obj.info"(command) {
    return { message: stored(await (await storeOf(command)).info(command.name), command.name) };
  },
  async "obj.delete"(command) {
    const { success } = await (await storeOf(command)).delete(command.name);
    if (!success) throw new Error("the answer has success: false");
  },
  async "obj.update"(command) {
    const changed = { name: command.new_name, description: command.description };
    await (await storeOf(command)).update(command.name, changed);
  },
  async "obj.link"(command) {
    const store = await storeOf(command);
    await store.link(command.name, await store.info(command.target));
  },
  async "obj.list"(command) {
    const found = await (await storeOf(command)).list();
    return { messages: found.map((info) => stored(info, info.name)) };
  },
  async "obj.seal"(command) {
    await (await storeOf(command)).seal();
  },
  async "service.add"(command) {
    const { name, version, description, metadata, queue } = command;
    services.set(command.service, await library.services(connection).add({ name, version, description, metadata, queue }));
  },
  async "service.endpoint"(command) {
    const service = services.get(command.service);
    const place = command.group ? service.addGroup(command.group, command.group_queue) : service;
    const options = { subject: command.subject, metadata: command.metadata, queue: command.queue };
    if (command.error_code) {
      options.handler = () => {
        throw new library.ServiceError(Number(command.error_code), command.error_text);
      };
    }
    const requests = place.addEndpoint(command.name, options);
    if (command.error_code) return;
    (async () => {
      for await (const request of requests) {
        if (command.delay_ms) await new Promise((done) => setTimeout(done, command.delay_ms));
        request.respond(request.data);
      }
    })();
  },
  async "service.stop"(command) {
    await services.get(command.service).stop();
  },
  async "service.reset"(command) {
    services.get(command.service).reset();
  },
  async ack(command) {
    const message = messages[command.ref - 1];
    const kinds = {
      ack: () => message.ack(),
      nak: () => message.nak(command.delay_ms),
      progress: () => message.working(),
      term: () => message.term(command.reason),
    };
    kinds[command.kind ?? "ack"]();
  },
  async "ack.sync"(command) {
    const done = await messages[command.ref - 1].ackAck({ timeout: command.timeout_ms ?? 1000 });
    if (!done) throw new Error("ackAck() gave false");
  },
};

// Serves the library until stdin ends.
function run(version, features, ofThisRelease) {
  library = ofThisRelease;
  serve({ protocol: "nats", library: "nats.js", version, features }, actions);
}

module.exports = { run };
