// Starts Plumbline for a test in JavaScript: a broker, with or without a defect, or a proxy that injects faults.
"use strict";
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { createInterface } = require("node:readline");

/** Runs plumbline; the URL at the beginning of its first line, and a function that stops it. */
async function start(...args) {
  const child = spawn(process.env.PLUMBLINE || "plumbline", args, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close");
  const lines = createInterface({ input: child.stdout });
  const [line] = await Promise.race([once(lines, "line"), ended.then(() => [""])]);
  if (!line) throw new Error(`plumbline ${args.join(" ")} did not start`);
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  return { url: line.split(" ")[0], stop };
}

module.exports = { start };
