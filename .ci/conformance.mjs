// The official conformance runner against a fresh stack of three gateways, judged by its checks.
//
// The runner exits 0 on warnings and on scenarios that it skipped, so its exit code is not
// looked at: every checks.json is read and counted here, and a check that did not run fails like
// one that failed. `tasks-status-notifications`, which the runner only ever skips, is replaced by
// checks of our own. Then the scenarios of 2025-11-25 (conformance-legacy.mjs).

import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { checkStatusNotifications } from "./conformance-status-notifications.mjs";
import { checkLegacy } from "./conformance-legacy.mjs";
import { runChild } from "./clients/child.mjs";
import { withStack } from "./clients/stack.mjs";
import { MODULES } from "./clients/tools.mjs";

const GATEWAYS = 3;
const WITHIN_MS = 8 * 60_000;
const RUNNER = path.join(MODULES, "@modelcontextprotocol/conformance/dist/index.js");
const VERSION = "2026-07-28";
const SKIPPED_BY_RUNNER = "tasks-status-notifications";
const CORE_SCENARIOS = 40;
const TASK_SCENARIOS = 10;
/// The scenarios of `tasks-*` share nothing but the server, so a few run side by side.
const SIDE_BY_SIDE = 3;

const BAD = ["FAILURE", "WARNING", "SKIPPED"];

function runner(args, withinMs) {
  return runChild(process.execPath, [RUNNER, ...args], { withinMs });
}

/// The names of the scenarios that the runner has, as its own `list` says.
async function scenarios(...args) {
  const { code, output } = await runner(["list", "--server", ...args], 60_000);
  if (code !== 0) throw new Error(`the conformance runner does not start:\n${output}`);
  return [...output.matchAll(/^ {2}- (\S+) /gm)].map(([, name]) => name);
}

/// Reads what the runner saved under `out`: scenario → its checks.
function saved(out) {
  const found = new Map();
  for (const entry of readdirSync(out)) {
    const name = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(entry)?.[1];
    const file = path.join(out, entry, "checks.json");
    // A scenario that broke off leaves an empty folder.
    if (name && existsSync(file)) found.set(name, JSON.parse(readFileSync(file, "utf8")));
  }
  return found;
}

async function runAll(url, out) {
  const core = await scenarios("--spec-version", VERSION);
  const tasks = (await scenarios()).filter((name) => name.startsWith("tasks-"));
  if (core.length !== CORE_SCENARIOS) throw new Error(`expected ${CORE_SCENARIOS} core scenarios, the runner has ${core.join(", ")}`);
  if (tasks.length !== TASK_SCENARIOS) throw new Error(`expected ${TASK_SCENARIOS} tasks-* scenarios, the runner has ${tasks.join(", ")}`);

  const logs = new Map();
  const { output } = await runner(["server", "--url", url, "--suite", "all", "--spec-version", VERSION, "-o", out], 4 * 60_000);
  for (const name of core) logs.set(name, output);

  const waiting = tasks.filter((name) => name !== SKIPPED_BY_RUNNER);
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, async () => {
    for (let name = waiting.shift(); name; name = waiting.shift()) {
      // Without --spec-version: with it the runner skips these and calls that a success.
      logs.set(name, (await runner(["server", "--url", url, "--scenario", name, "-o", out], 90_000)).output);
    }
  }));

  const checks = saved(out);
  checks.set(SKIPPED_BY_RUNNER, await checkStatusNotifications(url)
    .catch((error) => [{ id: "own-checks", status: "FAILURE", errorMessage: error.message }]));
  return { names: [...core, ...tasks], checks, logs };
}

/// Judges one scenario: what it did wrong; empty when it passed.
function judge(checks) {
  if (!checks) return [{ status: "FAILURE", id: "-", errorMessage: "the runner left no checks.json" }];
  const problems = checks.filter((check) => BAD.includes(check.status));
  const ran = checks.some((check) => check.status === "SUCCESS");
  if (!ran && problems.length === 0) problems.push({ status: "FAILURE", id: "-", errorMessage: "no check ran" });
  return problems;
}

/// Shows what a scenario did wrong, and the end of the runner's log if there is nothing else.
function show(name, problems, log) {
  console.log(`FAILED ${name}`);
  for (const { status, id, errorMessage, details } of problems) {
    console.log(`  ${status} ${id}: ${errorMessage ?? ""}`);
    if (details && Object.keys(details).length > 0) console.log(`    ${JSON.stringify(details).slice(0, 1500)}`);
  }
  if (log) console.log(log.slice(-2000).replace(/^/gm, "    | "));
}

function report(names, checks, logs) {
  const counts = { passed: 0, failed: 0 };
  const statuses = {};
  for (const name of names) {
    for (const check of checks.get(name) ?? []) statuses[check.status] = (statuses[check.status] ?? 0) + 1;
    const problems = judge(checks.get(name));
    counts[problems.length > 0 ? "failed" : "passed"] += 1;
    if (problems.length > 0) show(name, problems, checks.has(name) ? "" : logs.get(name) ?? "");
  }
  console.log(`checks: ${Object.entries(statuses).map(([status, count]) => `${count} ${status}`).join(", ")}`);
  console.log(`conformance: ${counts.passed} passed, ${counts.failed} failed`);
  return counts.failed === 0;
}

const out = mkdtempSync(path.join(os.tmpdir(), "mcp-tasks-conformance-"));
const legacyOut = mkdtempSync(path.join(os.tmpdir(), "mcp-tasks-conformance-legacy-"));
process.on("exit", () => [out, legacyOut].forEach((folder) => rmSync(folder, { recursive: true, force: true })));

process.exitCode = await withStack({ gateways: GATEWAYS }, WITHIN_MS, async ({ url, counts, log }) => {
  const { names, checks, logs } = await runAll(url, out);
  const modern = report(names, checks, logs);
  const legacy = await checkLegacy(url, legacyOut, { runner, scenarios, saved, judge, show });
  const good = modern && legacy;
  if (!good && process.env.CONFORMANCE_STACK_LOG) console.log(`--- stack ---\n${log()}`);
  if (counts.some((count) => count === 0)) throw new Error(`a gateway was never asked: ${counts}`);
  return good ? 0 : 1;
}).catch((error) => {
  console.error(error.stack);
  console.log("conformance: 0 passed, 1 failed");
  return 1;
});
