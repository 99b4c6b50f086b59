// Runs one command to its end, within a time, never leaving it behind.

import { spawn } from "node:child_process";

const running = new Set();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/// Runs `command` and resolves to `{ code, output, seconds }`; a command over its time is killed
/// and has the code `null`.
export function runChild(command, args, { withinMs, ...options }) {
  return new Promise((resolve) => {
    const started = Date.now();
    let output = "";
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
    running.add(child);
    const timer = setTimeout(() => {
      output += `\nnot done within ${withinMs / 1000} s\n`;
      child.kill("SIGKILL");
    }, withinMs);
    const done = (code) => {
      clearTimeout(timer);
      running.delete(child);
      resolve({ code, output, seconds: (Date.now() - started) / 1000 });
    };
    child.stdout.on("data", (chunk) => (output += chunk));
    child.stderr.on("data", (chunk) => (output += chunk));
    child.on("error", (error) => {
      output += `\n${error.message}\n`;
      done(null);
    });
    child.on("close", done);
  });
}
