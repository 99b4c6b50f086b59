// The TypeScript SDK reads through us what published servers serve beside tools.
// Usage: node typescript_upstreams.mjs URL, of a gateway before the servers of .ci/upstreams/run.mjs

import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const SOON_MS = 60_000;
const client = new Client({ name: "mcp-tasks-typescript", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));

async function until(what, look) {
  for (const deadline = Date.now() + SOON_MS; ;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < deadline, `not within ${SOON_MS / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const text = ({ contents }) => contents[0].text;
const uncached = { cacheMode: "bypass" };

// Listed under their prefixes: the names of both servers, and the URIs of each.
const resources = await until("all resources", async () => {
  const { resources } = await client.listResources({}, uncached);
  const has = (uri) => resources.some((resource) => resource.uri === uri);
  return has("note://one") && has("stdio+demo://resource/static/document/features.md") && resources;
});
const uris = resources.map(({ uri }) => uri);
assert.ok(uris.includes("demo://resource/static/document/features.md"), String(uris));
assert.ok(resources.find(({ uri }) => uri === "note://one").name.startsWith("py_"));
const { resourceTemplates } = await client.listResourceTemplates({}, uncached);
const templates = resourceTemplates.map(({ uriTemplate }) => uriTemplate);
for (const template of ["demo://resource/dynamic/text/{resourceId}", "note://{year}/all"]) {
  assert.ok(templates.includes(template), String(templates));
}
const { prompts } = await client.listPrompts({}, uncached);
const names = prompts.map(({ name }) => name);
for (const name of ["http_simple-prompt", "stdio_simple-prompt", "http_args-prompt", "py_greet"]) {
  assert.ok(names.includes(name), String(names));
}

// Read: listed ones, ones of a template, the same of two servers.
assert.match(text(await client.readResource({ uri: uris.find((uri) => uri.startsWith("demo://")) })), /\w/);
assert.match(text(await client.readResource({ uri: "demo://resource/dynamic/text/7" })), /Resource 7/);
const other = await client.readResource({ uri: "stdio+demo://resource/dynamic/text/8" });
assert.match(text(other), /Resource 8/);
assert.equal(other.contents[0].uri, "stdio+demo://resource/dynamic/text/8");
assert.match((await client.readResource({ uri: "demo://resource/dynamic/blob/7" })).contents[0].blob, /\w/);
assert.equal(text(await client.readResource({ uri: "note://one" })), "the first note");
assert.equal(text(await client.readResource({ uri: "note://2026/all" })), "all of 2026");
await assert.rejects(client.readResource({ uri: "note://none" }));

// Links in results lead to what can be read.
for (const prefix of ["http_", "stdio_"]) {
  const { content } = await client.callTool({ name: `${prefix}get-resource-links`, arguments: { count: 2 } });
  const link = content.find(({ type }) => type === "resource_link");
  assert.equal(link.uri.startsWith("stdio+"), prefix === "stdio_", link.uri);
  assert.equal((await client.readResource({ uri: link.uri })).contents[0].uri, link.uri);
}

// Prompts, with arguments, and completions that depend on them.
const asked = await client.getPrompt({ name: "http_args-prompt", arguments: { city: "Köln" } });
assert.match(asked.messages[0].content.text, /Köln/);
const greeted = await client.getPrompt({ name: "py_greet", arguments: { who: "Ada" } });
assert.equal(greeted.messages[0].content.text, "Hello, Ada!");
const complete = async (prompt, argument, context) =>
  (await client.complete({ ref: { type: "ref/prompt", name: prompt }, argument, context })).completion.values;
assert.deepEqual(await complete("http_completable-prompt", { name: "department", value: "S" }), ["Sales", "Support"]);
assert.deepEqual(
  await complete("stdio_completable-prompt", { name: "name", value: "" }, { arguments: { department: "Sales" } }),
  ["David", "Eve", "Frank"],
);
const ref = { type: "ref/resource", uri: "demo://resource/dynamic/text/{resourceId}" };
const completed = await client.complete({ ref, argument: { name: "resourceId", value: "12" } });
assert.deepEqual(completed.completion.values, ["12"]);

// Whoever listens hears of changes: the server is subscribed to for them.
const updates = [];
client.setNotificationHandler("notifications/resources/updated", ({ params }) => updates.push(params.uri));
const watched = ["demo://resource/dynamic/text/7"];
const subscription = await client.listen({ resourceSubscriptions: watched });
await client.callTool({ name: "http_toggle-subscriber-updates", arguments: {} });
await until("news of it", async () => updates.length > 0);
assert.deepEqual([...new Set(updates)], watched);
await subscription.close();
await client.close();
console.log("typescript: every step held");
