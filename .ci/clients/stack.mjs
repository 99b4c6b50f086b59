// Starts and ends one private stack (`mcp-tasks dev`) with the round-robin proxy in front.
//
// Whatever happens, nothing outlives the caller: the dev command is asked to stop, then it and
// every process that it listed are killed by their ids.

import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { chmodSync, closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { startProxy } from "./proxy.mjs";
import { ROOT } from "./root.mjs";

const READY_WITHIN_MS = 180_000;
const STOP_WITHIN_MS = 20_000;

function binary() {
  const target = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? "target");
  const file = process.env.MCP_TASKS_BIN ?? path.join(target, "debug/mcp-tasks");
  if (!existsSync(file)) throw new Error(`${file} is missing: run \`cargo build -p mcp-tasks\` first`);
  return file;
}

const given = new Set();

// Never twice, and none that the system gives to a connection before its owner listens: those begin at 32768.
export async function freePort() {
  for (;;) {
    const port = randomInt(10240, 32768);
    if (given.has(port)) continue;
    const probe = net.createServer();
    const free = await new Promise((resolve) =>
      probe.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    if (!free) continue;
    given.add(port);
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // Gone already.
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/// Starts a fresh stack with the conformance fixtures beside the demo tools, its first gateway at `port`
/// (a free one), and `args` more.
/// Resolves when every process is ready: `{ url, processes, logs, counts, workerPid(), log(), stop() }`,
/// where `url` is the proxy's MCP endpoint and `logs` the processes' folder of logs.
export async function startStack({ gateways, workers = 1, port, args = [] }) {
  const dir = mkdtempSync(path.join(os.tmpdir(), "mcp-tasks-"));
  // Postgres runs as an unprivileged user and keeps its data here if it may enter.
  chmodSync(dir, 0o755);
  const data = path.join(dir, "data");
  const logFile = path.join(dir, "log");
  const listing = path.join(data, "processes.json");
  const log = () => (existsSync(logFile) ? readFileSync(logFile, "utf8") : "");

  const logFd = openSync(logFile, "a");
  const child = spawn(
    // Asks the system to end the stack even if this process is killed, then becomes the command.
    "setpriv",
    ["--pdeathsig", "TERM", binary(), "dev", "--port", String(port ?? (await freePort())), "--gateways", String(gateways), "--workers", String(workers),
      "--fixtures", "conformance", "--data-dir", data, "--fresh", ...args],
    // Its own group: a ctrl-C at the terminal reaches us first, and we end it in order.
    { cwd: ROOT, stdio: ["ignore", logFd, logFd], detached: true },
  );
  closeSync(logFd);
  let ended;
  child.on("error", (error) => (ended = `could not start: ${error.message}`));
  child.on("exit", (code, signal) => (ended = `ended early (${signal ?? `exit code ${code}`})`));

  const listed = () => {
    try {
      const processes = JSON.parse(readFileSync(listing, "utf8"));
      return Object.values(processes).flat().map((process) => process.pid);
    } catch {
      return [];
    }
  };
  let proxy;
  let stopped = false;
  const killAll = () => {
    if (stopped) return;
    for (const pid of [child.pid, ...listed()]) if (pid) kill(pid, "SIGKILL");
  };
  process.once("exit", killAll);

  async function stop() {
    if (stopped) return;
    proxy?.stop();
    const pids = listed();
    if (child.pid && !ended) kill(child.pid, "SIGINT");
    const deadline = Date.now() + STOP_WITHIN_MS;
    while (!ended && Date.now() < deadline) await sleep(50);
    for (const pid of ended ? pids : [child.pid, ...pids]) if (pid && alive(pid)) kill(pid, "SIGKILL");
    stopped = true;
    rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  try {
    const deadline = Date.now() + READY_WITHIN_MS;
    while (!existsSync(listing)) {
      if (ended) throw new Error(`mcp-tasks dev ${ended}`);
      if (Date.now() > deadline) throw new Error(`mcp-tasks dev was not ready within ${READY_WITHIN_MS / 1000} s`);
      await sleep(100);
    }
    const processes = JSON.parse(readFileSync(listing, "utf8"));
    if (processes.gateways.length !== gateways) {
      throw new Error(`asked for ${gateways} gateways, processes.json lists ${processes.gateways.length}`);
    }
    proxy = await startProxy(processes.gateways.map((gateway) => gateway.url));
    const workerPid = () => {
      try {
        return JSON.parse(readFileSync(listing, "utf8")).workers[0].pid;
      } catch {
        // It is being written.
        return undefined;
      }
    };
    return { url: proxy.url, counts: proxy.counts, processes, logs: path.join(data, "run"), workerPid, log, stop };
  } catch (error) {
    error.message += `\n--- log of mcp-tasks dev (its end) ---\n${log().split("\n").slice(-60).join("\n")}`;
    await stop();
    throw error;
  }
}

/// Runs `body(stack)` and ends the stack whatever happens, also on a signal or when `withinMs` is over.
export async function withStack(options, withinMs, body) {
  const stack = await startStack(options);
  const giveUp = (why, code) => async () => {
    console.error(why);
    await stack.stop();
    process.exit(code);
  };
  const signals = { SIGINT: giveUp("interrupted", 130), SIGTERM: giveUp("terminated", 143) };
  for (const [signal, handler] of Object.entries(signals)) process.once(signal, handler);
  const timer = setTimeout(giveUp(`not done within ${withinMs / 1000} s`, 124), withinMs);
  try {
    return await body(stack);
  } finally {
    clearTimeout(timer);
    for (const [signal, handler] of Object.entries(signals)) process.removeListener(signal, handler);
    await stack.stop();
  }
}
