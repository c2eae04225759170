"use strict";
const { mkdtempSync } = require("node:fs");
const net = require("node:net");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { createInterface } = require("node:readline");
const { start } = require("./plumbline");

jest.setTimeout(60_000); // for a busy machine
const started = [];
const plumbline = async (...args) => {
  started.unshift(await start(...args)); // what was started last is stopped first
  return started[0].url;
};
afterEach(async () => {
  while (started.length) await started.shift().stop();
});

test("a broker", async () => {
  const lines = await ask(await plumbline("broker", "nats", "-js", "-p", "-1"), 2);
  expect(lines[0]).toContain('"proto":1');
  expect(lines[1]).toBe("PONG");
});

test("a broker with a defect", async () => {
  const lines = await ask(await plumbline("broker", "nats", "-p", "-1", "--defect", "info-has-proto-0"), 2);
  expect(lines[0]).toContain('"proto":0');
});

test("a proxy with a fault", async () => {
  const broker = await plumbline("broker", "nats", "-p", "-1");
  const folder = mkdtempSync(join(tmpdir(), "captures-"));
  const fault = ["--fault", "duplicate PONG"];
  const lines = await ask(await plumbline("record", broker, "--listen", "127.0.0.1:0", "-o", folder, ...fault), 3);
  expect(lines.slice(1)).toEqual(["PONG", "PONG"]);
});

/** This is where your client would be: sends a PING, and returns that many lines of the server. */
async function ask(server, count) {
  const { hostname, port } = new URL(server);
  const socket = net.connect(Number(port), hostname);
  socket.write("CONNECT {\"verbose\":false}\r\nPING\r\n");
  const found = [];
  for await (const line of createInterface({ input: socket })) {
    found.push(line);
    if (found.length === count) break;
  }
  socket.destroy();
  return found;
}
