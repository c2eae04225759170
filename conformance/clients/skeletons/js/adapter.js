// An adapter for plumbline gate: replace what says "my library". For each command of the adapter protocol that the library
// supports, add an action and its feature. say({ event: ... }) writes an event.
"use strict";

const readline = require("node:readline");

const PROTOCOL = "PROTOCOL";
const FEATURES = [];

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

// Each returns the fields of "ok", or throws what the library throws.
const actions = {
  async connect(command) {}, // my library connects to command.url
  async close(command) {},
};

async function answer(command) {
  const action = Object.hasOwn(actions, command.do) ? actions[command.do] : null;
  if (action === null) return { error: { text: "unknown command", type: "unsupported" } };
  try {
    return { ok: (await action(command)) ?? {} };
  } catch (error) {
    return { error: { text: error.message, type: error.name } };
  }
}

async function main() {
  const language = `node ${process.versions.node}`;
  say({ hello: "plumbline.adapter/1", protocol: PROTOCOL, library: "my library", version: "0", language, features: FEATURES });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    say({ id: command.id, ...(await answer(command)) });
  }
  process.exit(0);
}

main();
