// The TypeScript SDK 1.x (`@modelcontextprotocol/sdk`), which speaks MCP 2025-11-25, drives the
// stack, its experimental tasks too. Usage: node typescript_legacy.mjs URL
//
// It knows nothing of 2026-07-28: no `_meta`, no `Mcp-*` headers but the version's, and it answers
// questions by responses in requests of their own.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema, ListTasksResultSchema } from "@modelcontextprotocol/sdk/types.js";

const VERSION = "2025-11-25";
const UNKNOWN_TASK = "01900000-0000-7000-8000-000000000000";
const RELATED = "io.modelcontextprotocol/related-task";
// Without a session a call that shall be asked says so itself.
const ASKABLE = { "io.modelcontextprotocol/clientCapabilities": { elicitation: {} } };

const url = new URL(process.argv[2]);
const step = (name) => console.log(`- ${name}`);
const text = (result) => result.content.map((block) => block.text ?? "").join("");

async function connect(user, answer = () => assert.fail(`${user} was asked`)) {
  const headers = user === undefined ? {} : { Authorization: `Bearer ${user}` };
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  const client = new Client({ name: "mcp-tasks-legacy", version: "1.0.0" }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, answer);
  client.onerror = (error) => console.log(`  (${error.message})`);
  await client.connect(transport);
  assert.equal(transport.sessionId, undefined, "a session was begun");
  assert.equal(transport.protocolVersion, VERSION);
  return client;
}

const asked = [];
const alice = await connect("alice", (request) => {
  asked.push(request.params);
  return { action: "accept", content: { charts: true } };
});
const tasks = alice.experimental.tasks;

/// Calls a tool as a task, to its end: the statuses seen and the result or the error.
async function run(client, name, args, meta) {
  const seen = { statuses: [] };
  const params = { name, arguments: args, ...(meta && { _meta: meta }) };
  for await (const message of client.experimental.tasks.callToolStream(params, CallToolResultSchema, { task: { ttl: 60_000 } })) {
    if (message.type === "taskCreated") seen.task = message.task;
    else if (message.type === "taskStatus") seen.statuses.push(message.task.status);
    else seen[message.type] = message.result ?? message.error;
  }
  return seen;
}

async function start(client, name, args) {
  const stream = client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: {} });
  const { value } = await stream.next();
  assert.equal(value.type, "taskCreated", JSON.stringify(value));
  await stream.return();
  return value.task;
}

step("initialize, ping and list");
const capabilities = alice.getServerCapabilities();
assert.deepEqual(capabilities.tasks, { list: {}, cancel: {}, requests: { tools: { call: {} } } });
assert.equal(capabilities.tools.listChanged, undefined, "changes are promised that nobody can be told of");
assert.deepEqual(await alice.ping(), {});
const { tools } = await alice.listTools();
const support = Object.fromEntries(tools.map((tool) => [tool.name, tool.execution?.taskSupport]));
assert.equal(support.greet, "forbidden");
assert.equal(support.slow_compute, "optional");
assert.equal(support.failing_job, "required");

step("ordinary calls");
assert.equal(text(await alice.callTool({ name: "greet", arguments: { name: "Ada" } })), "Hello, Ada!");
assert.ok(text(await alice.callTool({ name: "slow_compute", arguments: { seconds: 1 } })).length > 0);
const progress = [];
await alice.callTool({ name: "test_tool_with_progress", arguments: {} }, undefined, { onprogress: (report) => progress.push(report.progress) });
assert.ok(progress.length >= 3, `progress: ${progress}`);
const refused = (promise, code, what) => assert.rejects(promise, (error) => error.code === code, what);
await refused(alice.callTool({ name: "no_such_tool", arguments: {} }), -32602, "an unknown tool");

step("a task to its end");
const report = await run(alice, "slow_compute", { seconds: 2 });
assert.equal(report.task.status, "working");
assert.ok(report.task.pollInterval >= 100 && report.task.ttl > 60_000, JSON.stringify(report.task));
assert.equal(report.statuses.at(-1), "completed", report.statuses.join(" "));
assert.ok(text(report.result).length > 0);
assert.equal(report.result._meta[RELATED].taskId, report.task.taskId);

step("a task that asks, as far as its call allows");
const built = await run(alice, "build_report", { month: "2026-10" }, ASKABLE);
assert.ok(text(built.result).length > 0, JSON.stringify(built));
assert.equal(asked.length, 1, "the question did not come exactly once");
assert.equal(asked[0]._meta[RELATED].taskId, built.task.taskId);
assert.ok(built.statuses.includes("input_required"), built.statuses.join(" "));
await run(alice, "build_report", { month: "2026-11" });
assert.equal(asked.length, 1, "a call was asked that had not said it could be");

step("what a task does when a tool or the protocol fails");
const failed = await run(alice, "failing_job", {});
assert.equal(failed.statuses.at(-1), "failed", failed.statuses.join(" "));
const told = await tasks.getTaskResult(failed.task.taskId, CallToolResultSchema);
assert.equal(told.isError, true);
const broken = await run(alice, "protocol_error_job", {});
assert.equal(broken.statuses.at(-1), "failed", broken.statuses.join(" "));
await assert.rejects(tasks.getTaskResult(broken.task.taskId, CallToolResultSchema), (error) => Number.isInteger(error.code));
const forbidden = await run(alice, "greet", { name: "Ada" });
assert.equal(forbidden.error.code, -32601, JSON.stringify(forbidden));
const bare = await connect("alice");
await refused(bare.callTool({ name: "failing_job", arguments: {} }), -32601, "a tool that is a task only");
await bare.close();

step("a result that is waited for");
const slow = await start(alice, "slow_compute", { seconds: 3 });
assert.ok(text(await tasks.getTaskResult(slow.taskId, CallToolResultSchema)).length > 0);

step("cancel");
const long = await start(alice, "slow_compute", { seconds: 60 });
assert.equal((await tasks.cancelTask(long.taskId)).status, "cancelled");
assert.equal((await tasks.getTask(long.taskId)).status, "cancelled");
await refused(tasks.cancelTask(long.taskId), -32602, "a second cancel");
await assert.rejects(tasks.getTaskResult(long.taskId, CallToolResultSchema));

step("list, in pages, and only one's own");
const mine = new Set();
for (let cursor; ;) {
  const page = await tasks.listTasks(cursor);
  for (const task of page.tasks) mine.add(task.taskId);
  cursor = page.nextCursor;
  if (cursor === undefined) break;
}
for (const id of [report, built, failed, broken].map((seen) => seen.task.taskId)) assert.ok(mine.has(id), `${id} is not listed`);
const bob = await connect("bob-legacy");
assert.deepEqual((await bob.experimental.tasks.listTasks()).tasks, []);
for (const id of [long.taskId, UNKNOWN_TASK]) {
  const theirs = bob.experimental.tasks;
  for (const attempt of [() => theirs.getTask(id), () => theirs.cancelTask(id), () => theirs.getTaskResult(id, CallToolResultSchema)]) {
    await assert.rejects(attempt, (error) => error.code === -32602 && /Task not found/.test(error.message));
  }
}
await bob.close();
const nobody = await connect(undefined);
assert.equal(nobody.getServerCapabilities().tasks.list, undefined, "nobody may list what others do");
await refused(nobody.request({ method: "tasks/list" }, ListTasksResultSchema), -32601, "nobody's list");
await nobody.close();

await alice.close();
console.log("typescript legacy: every step held");
