// The TypeScript SDK (`@modelcontextprotocol/client` + `@modelcontextprotocol/ext-tasks`) drives
// the stack. Usage: node typescript.mjs URL
//
// The SDK's own Client refuses `resultType: "task"`; ext-tasks adds it, and for a server of
// 2026-07-28 wants the host to bring the raw path to the wire: a second SDK transport.

import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { DispatchError, createApplicationInputHandler, createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const VERSION = "2026-07-28";
const IDEMPOTENCY_KEY = "io.github.mcp-tasks/idempotencyKey";
const UNKNOWN_TASK = "01900000-0000-7000-8000-000000000000";
const clientInfo = { name: "mcp-tasks-typescript", version: "1.0.0" };

const url = new URL(process.argv[2]);
const transportAs = (user) =>
  new StreamableHTTPClientTransport(url, { requestInit: { headers: { Authorization: `Bearer ${user}` } } });

/// The raw path to the wire: requests in, JSON-RPC responses out, over one SDK transport.
async function rawDispatch(transport) {
  const waiting = new Map();
  let lastId = 0;
  transport.onmessage = (message) => {
    if (message.method !== undefined || !waiting.has(message.id)) return;
    const settle = waiting.get(message.id);
    settle(message.error ? { kind: "error", error: message.error } : { kind: "result", result: message.result });
  };
  await transport.start();
  return async (request, options = {}) => {
    const id = ++lastId;
    try {
      return await new Promise((resolve, reject) => {
        waiting.set(id, resolve);
        transport.send({ ...request, jsonrpc: "2.0", id }, {
          requestSignal: options.signal,
          headers: options.context?.headers,
          onRequestStreamEnd: () => reject(new DispatchError("the answer ended without a response")),
        }).catch((error) => reject(new DispatchError(error.message, false, { cause: error })));
      });
    } finally {
      waiting.delete(id);
    }
  };
}

/// Connects as `user`; `answer` is called with what a task asks.
async function connect(user, answer) {
  const client = new Client(clientInfo, { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: "auto" } });
  await client.connect(transportAs(user));
  const raw = transportAs(user);
  const dispatch = await rawDispatch(raw);
  const session = createTaskSessionFromClient(client, {
    endpointId: "mcp-tasks",
    rawDispatch: dispatch,
    v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities: { elicitation: { form: {} } } },
    onInputRequest: createApplicationInputHandler({
      elicitation: answer,
      sampling: () => assert.fail("nobody was to be sampled"),
      roots: () => assert.fail("nobody was to be asked for roots"),
    }),
  });
  return { client, session, close: async () => { await session.close(); await raw.close(); await client.close(); } };
}

const step = (name) => console.log(`- ${name}`);
const text = (result) => result.content.map((block) => block.text ?? "").join("");

const asked = [];
const alice = await connect("alice", (request, { inputId }) => {
  asked.push(inputId);
  return { action: "accept", content: { charts: true } };
});
const { client, session } = alice;

step("discover and list");
assert.equal(client.getProtocolEra(), "modern", "the connection fell back to a legacy revision");
assert.deepEqual(client.getServerCapabilities().extensions["io.modelcontextprotocol/tasks"], {}, "the tasks extension is not advertised as {}");
assert.equal(session.capabilities.execution, true, "ext-tasks does not see a tasks server");
const { tools } = await client.listTools();
for (const name of ["greet", "slow_compute", "build_report", "run_suite", "reindex_corpus"]) {
  assert.ok(tools.some((tool) => tool.name === name), `${name} is not listed`);
}

step("inline call through the plain client, which does not know tasks");
assert.equal(text(await client.callTool({ name: "greet", arguments: { name: "Ada" } })), "Hello, Ada!");
const plain = await client.callTool({ name: "slow_compute", arguments: { seconds: 1 } });
assert.ok(text(plain).length > 0, "an undeclared slow call has no content");

step("inline call through the tasks session");
const immediate = await session.callTool("greet", { name: "Grace" });
assert.equal(immediate.kind, "immediate", "greet became a task");
assert.equal(text((await immediate.settle()).outcome.result), "Hello, Grace!");

step("slow call, task, question, answer, completed");
const started = Date.now();
const report = await session.callTool("build_report", { month: "2026-10" });
assert.equal(report.kind, "task", "build_report did not become a task");
assert.ok(Date.now() - started < 5_000, "the handle did not come at once");
const statuses = [];
const { outcome } = await report.settle({ onEvent: (event) => { if (event.type === "task") statuses.push(event.task.status); } });
assert.equal(outcome.status, "completed", `build_report ended as ${JSON.stringify(outcome)}`);
assert.ok(text(outcome.result).length > 0, "build_report's result is empty");
assert.deepEqual(asked, ["charts"], "the question did not come exactly once");
assert.ok(statuses.includes("working") && statuses.includes("input_required"), `only ${statuses} were seen`);

step("a finished task reads the same twice");
const controller = session.task(report.handle.taskId);
assert.deepEqual((await controller.snapshot()).raw.result, (await controller.snapshot()).raw.result);

step("cancel");
const long = await session.callTool("slow_compute", { seconds: 60 });
await long.cancel();
const longTask = session.task(long.handle.taskId);
for (const deadline = Date.now() + 15_000; (await longTask.snapshot()).status !== "cancelled";) {
  assert.ok(Date.now() < deadline, "the cancelled task did not stop");
  await new Promise((resolve) => setTimeout(resolve, 200));
}

step("a tool's error completes, a protocol error fails");
const toolError = (await (await session.callTool("failing_job", {})).settle()).outcome;
assert.equal(toolError.status, "completed", `failing_job ended as ${toolError.status}`);
assert.equal(toolError.result.isError, true, "failing_job's result is not an error");
const failed = (await (await session.callTool("protocol_error_job", {})).settle()).outcome;
assert.equal(failed.status, "failed", `protocol_error_job ended as ${failed.status}`);
assert.equal(typeof failed.error.code, "number", "the failure has no code");
assert.ok(failed.error.message.length > 0, "the failure has no message");

step("another user's token");
const bob = await connect("bob", () => assert.fail("bob was asked"));
const refused = async (id) => bob.session.task(id).snapshot().then(
  () => assert.fail("bob read a task that is not his"),
  (error) => ({ code: error.code, message: error.message }),
);
assert.deepEqual(await refused(report.handle.taskId), { code: -32602, message: "Failed to retrieve task: Task not found" });
assert.deepEqual(await refused(report.handle.taskId), await refused(UNKNOWN_TASK), "a foreign task differs from an unknown one");
await assert.rejects(bob.session.task(report.handle.taskId).cancel(), /Task not found/);
await bob.close();

step("the same idempotency key");
const key = { metadata: { [IDEMPOTENCY_KEY]: `typescript-${process.pid}-${Date.now()}` } };
const once = await session.callTool("slow_compute", { seconds: 2 }, key);
// A session refuses a handle that it holds already, so the repeat comes from a second one.
const again = await connect("alice", () => assert.fail("nothing was to be asked"));
const twice = await again.session.callTool("slow_compute", { seconds: 2 }, key);
assert.equal(twice.handle?.taskId, once.handle.taskId, "a repeat made a second task");
await twice.detach();
await again.close();
await assert.rejects(session.callTool("slow_compute", { seconds: 3 }, key), (error) => error.code === -32602, "the key was taken with other arguments");
assert.equal((await once.settle()).outcome.status, "completed");
const repeat = await session.callTool("slow_compute", { seconds: 2 }, key);
assert.equal(repeat.kind, "immediate", "a repeat after the end is not answered with the result");
await repeat.settle();

step("resources, prompts and completions");
const listed = async (method, member) => (await client[method]())[member].map(({ name }) => name);
assert.ok((await listed("listResources", "resources")).includes("Static text"));
assert.ok((await listed("listResourceTemplates", "resourceTemplates")).includes("Template"));
assert.ok((await listed("listPrompts", "prompts")).includes("test_simple_prompt"));
const readText = await client.readResource({ uri: "test://static-text" });
assert.equal(readText.contents[0].mimeType, "text/plain");
const readBlob = await client.readResource({ uri: "test://static-binary" });
assert.ok(readBlob.contents[0].blob.length > 0, "a binary resource has no bytes");
assert.equal((await client.readResource({ uri: "test://folder" })).contents.length, 2);
const data = await client.readResource({ uri: "test://template/42/data" });
assert.equal(JSON.parse(data.contents[0].text).id, "42");
await assert.rejects(client.readResource({ uri: "test://none" }), (error) => error.code === -32602 && error.data.uri === "test://none");
const steps = [];
const slow = await client.readResource({ uri: "test://slow/1500" }, { onprogress: (progress) => steps.push(progress), cacheMode: "bypass" });
assert.equal(slow.contents[0].text, "attempt 1");
assert.ok(steps.length > 0, "a slow read reported no progress");
const prompt = await client.getPrompt({ name: "test_prompt_with_arguments", arguments: { arg1: "x", arg2: "y" } });
assert.match(prompt.messages[0].content.text, /arg1='x', arg2='y'/);
await assert.rejects(client.getPrompt({ name: "test_prompt_with_arguments" }), /arg1, arg2/);
const completed = await client.complete({
  ref: { type: "ref/prompt", name: "test_prompt_with_arguments" },
  argument: { name: "arg2", value: "" },
  context: { arguments: { arg1: "one" } },
});
assert.deepEqual(completed.completion.values, ["one-2"]);

step("a resource that changes");
const updates = [];
client.setNotificationHandler("notifications/resources/updated", ({ params }) => updates.push(params.uri));
const subscription = await client.listen({ resourceSubscriptions: ["test://watched-resource"] });
await client.callTool({ name: "test_trigger_resource_update", arguments: {} });
for (const deadline = Date.now() + 15_000; updates.length === 0;) {
  assert.ok(Date.now() < deadline, "nobody told of the change");
  await new Promise((resolve) => setTimeout(resolve, 50));
}
assert.deepEqual([...new Set(updates)], ["test://watched-resource"]);
await subscription.close();

await alice.close();
console.log("typescript: every step held");
