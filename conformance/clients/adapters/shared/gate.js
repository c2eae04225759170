// What the adapters in JavaScript share: the adapter protocol on stdin and stdout (PROTOCOL.md). It knows no library.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const bytes = (text) => Buffer.from(text ?? "", "latin1");
const text = (data) => Buffer.from(data).toString("latin1");

// A report of an error: its text, its type, and its number if it has one. A code that is a word belongs to the text.
function describe(error) {
  const code = [error.code, error.status].find((value) => typeof value === "number");
  const word = typeof error.code === "string" && !error.message.includes(error.code) ? `${error.code}: ` : "";
  return { text: word + error.message, type: error.name, ...(code === undefined ? {} : { code }) };
}

// The fields of a command that are in `names`, by the names that the library has for them.
const given = (command, names) =>
  Object.fromEntries(Object.entries(names).filter(([theirs]) => theirs in command).map(([theirs, ours]) => [ours, command[theirs]]));

// The release of a package that npm has installed in a folder.
const release = (folder, name) => JSON.parse(fs.readFileSync(path.join(folder, "node_modules", name, "package.json"), "utf8")).version;

// What Node's TLS is given if a command names certificates to trust.
const trusted = (command) => ("tls_ca" in command ? { ca: fs.readFileSync(command.tls_ca, "utf8") } : undefined);

async function answer(actions, command) {
  const action = Object.hasOwn(actions, command.do) ? actions[command.do] : null;
  if (action === null) return { error: { text: "unknown command", type: "unsupported" } };
  try {
    const answered = (await action(command)) ?? {};
    return answered.both ?? { ok: answered };
  } catch (error) {
    return { error: describe(error) };
  }
}

// Says hello, then answers each command by the action of its name, until stdin ends. An action gives the fields of "ok",
// throws, or gives `both`: an answer with "ok" and "error".
async function serve({ protocol, library, version, features }, actions) {
  const language = `node ${process.versions.node}`;
  say({ hello: "plumbline.adapter/1", protocol, library, version, language, features: features.split(" ") });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    say({ id: command.id, ...(await answer(actions, command)) });
  }
  process.exit(0);
}

module.exports = { bytes, describe, given, release, say, serve, text, trusted };
