// What clients that poll too early cost, paced and unpaced: a fresh stack for each `gateway.pacing`, the
// same clients against each, and the gateways' own counters before and after.

import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { runChild } from "./clients/child.mjs";
import { ROOT } from "./clients/root.mjs";
import { result } from "./clients/rpc.mjs";
import { withStack } from "./clients/stack.mjs";
import { MODULES, PYTHON_FASTMCP } from "./clients/tools.mjs";

const GATEWAYS = Number(process.argv[2] ?? 1);
const MODES = ["off", "observe", "on"];
const WITHIN_MS = 5 * 60_000;
const RUNNER = path.join(MODULES, "@modelcontextprotocol/conformance/dist/index.js");
/// The scenarios in which the runner polls a task until it is over, every 200 ms.
const SCENARIOS = ["tasks-lifecycle", "tasks-mrtr-input"];
/// A task of which there is nothing new to see for so long.
const TASK_SECONDS = 10;
const RUNNER_PAUSE_MS = 200;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/// Sums of the gateways' counters.
async function counted({ gateways }) {
  const pages = await Promise.all(gateways.map(async ({ admin }) => (await fetch(`${admin}/metrics`)).text()));
  const lines = pages.join("\n").split("\n");
  const sum = (name, labels = "") => lines
    .filter((line) => (line.startsWith(`${name}{`) || line.startsWith(`${name} `)) && line.includes(labels))
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(" "))), 0);
  return {
    polls: sum("mcp_tasks_gateway_requests_total", 'method="tasks/get"'),
    early: sum("mcp_tasks_gateway_polls_total", 'pace="early"'),
    held: sum("mcp_tasks_gateway_polls_total", 'pace="held"'),
    refused: sum("mcp_tasks_gateway_polls_total", 'pace="refused"'),
    reads: sum("mcp_tasks_store_reads_together_sum"),
  };
}

async function runner(url) {
  const out = mkdtempSync(path.join(os.tmpdir(), "mcp-tasks-pacing-"));
  try {
    for (const name of SCENARIOS) {
      const { code, output } = await runChild(process.execPath, [RUNNER, "server", "--url", url, "--scenario", name, "-o", out], { withinMs: 90_000 });
      if (code !== 0) throw new Error(`${name}:\n${output}`);
    }
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

/// The runner's own loop, on a task that takes longer than any of its own.
async function runnersLoop(url) {
  const options = { token: "alice" };
  const call = { name: "slow_compute", arguments: { seconds: TASK_SECONDS } };
  const { taskId } = await result(url, "tools/call", call, options);
  for (;;) {
    const task = await result(url, "tasks/get", { taskId }, options);
    if (task.status === "completed") return;
    if (task.status !== "working") throw new Error(`the task is ${task.status}`);
    await sleep(RUNNER_PAUSE_MS);
  }
}

async function fastmcp(script, ...args) {
  const file = path.join(ROOT, ".ci/clients", script);
  const { code, output } = await runChild(PYTHON_FASTMCP, ["-B", file, ...args], { withinMs: 150_000, cwd: ROOT });
  if (code !== 0) throw new Error(`${script}:\n${output}`);
}

const CLIENTS = {
  "official runner": (url) => runner(url),
  [`its loop, ${TASK_SECONDS} s task`]: (url) => runnersLoop(url),
  "fastmcp, all steps": (url) => fastmcp("python_fastmcp.py", url),
  [`fastmcp, ${TASK_SECONDS} s task`]: (url) => fastmcp("python_fastmcp_waits.py", url, String(TASK_SECONDS)),
};

async function measure(pacing) {
  process.env.MCP_TASKS__GATEWAY__PACING = pacing;
  const rows = new Map();
  await withStack({ gateways: GATEWAYS }, WITHIN_MS, async ({ url, processes }) => {
    for (const [client, run] of Object.entries(CLIENTS)) {
      const before = await counted(processes);
      const started = Date.now();
      await run(url);
      const after = await counted(processes);
      const row = Object.fromEntries(Object.keys(after).map((key) => [key, after[key] - before[key]]));
      rows.set(client, { ...row, seconds: (Date.now() - started) / 1000 });
    }
  });
  return rows;
}

function print(table) {
  console.log(`gateways: ${GATEWAYS}`);
  console.log("| client | pacing | tasks/get | early | held | refused | reads of Postgres | seconds |");
  console.log("|---|---|---|---|---|---|---|---|");
  for (const client of Object.keys(CLIENTS)) {
    for (const pacing of MODES) {
      const { polls, early, held, refused, reads, seconds } = table.get(pacing).get(client);
      console.log(`| ${client} | \`${pacing}\` | ${polls} | ${early} | ${held} | ${refused} | ${reads} | ${seconds.toFixed(1)} |`);
    }
  }
}

/// What must be true of the figures.
function judge(table) {
  const problems = [];
  const total = (pacing, key) => [...table.get(pacing).values()].reduce((sum, row) => sum + row[key], 0);
  for (const pacing of MODES) {
    if (total(pacing, "refused") > 0) problems.push(`${pacing}: polls were refused`);
    if (pacing !== "on" && total(pacing, "held") > 0) problems.push(`${pacing}: polls were held`);
  }
  if (total("off", "early") > 0) problems.push("off: polls were counted");
  if (total("observe", "early") === 0) problems.push("observe: no early poll was counted");
  for (const key of ["polls", "reads"]) {
    const [paced, unpaced] = [total("on", key), total("off", key)];
    if (paced >= unpaced) problems.push(`${paced} ${key} paced, ${unpaced} unpaced`);
  }
  // Of several gateways each sees only some of a client's polls: too few of a short task to tell.
  for (const client of Object.keys(CLIENTS).filter((name) => GATEWAYS === 1 && name.includes("task"))) {
    const [paced, unpaced] = ["on", "off"].map((pacing) => table.get(pacing).get(client));
    for (const key of ["polls", "reads"]) {
      if (paced[key] >= unpaced[key]) problems.push(`${client}: ${paced[key]} ${key} paced, ${unpaced[key]} unpaced`);
    }
  }
  return problems;
}

const table = new Map();
for (const pacing of MODES) table.set(pacing, await measure(pacing));
print(table);
const problems = judge(table);
for (const problem of problems) console.log(`FAILED ${problem}`);
console.log(problems.length === 0 ? "pacing: every client passed, and paced ones cost fewer reads" : "pacing: failed");
process.exitCode = problems.length === 0 ? 0 : 1;
