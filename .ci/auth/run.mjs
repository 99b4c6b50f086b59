// Who is let in by a gateway that believes a real authorization server, and what everybody else is told.
// Prints how many tokens of each kind were tried.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { post, messages } from "../clients/rpc.mjs";
import { freePort, withStack } from "../clients/stack.mjs";
import { SECRET, newKey, revoke, startServer, token } from "./server.mjs";
import { forged } from "./forged.mjs";

// The published client lies among the other clients' packages.
const clients = createRequire(path.join(import.meta.dirname, "../clients/run.mjs"));
const esm = (name) => import(pathToFileURL(clients.resolve(name)).href.replace(/\.cjs$/, ".mjs"));
const { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } = await esm("@modelcontextprotocol/client");

const WITHIN_MS = 4 * 60_000;
const SOON_MS = 30_000;
const dir = mkdtempSync(path.join(os.tmpdir(), "mcp-tasks-auth-"));
process.on("exit", () => rmSync(dir, { recursive: true, force: true }));

const port = await freePort();
const url = `http://127.0.0.1:${port}/mcp`;
const serverPort = await freePort();
const [ec, rsa, ed, next] = await Promise.all([
  newKey("ES256", "ec-1"), newKey("RS256", "rsa-1"), newKey("EdDSA", "ed-1", { crv: "Ed25519" }), newKey("ES256", "ec-2"),
]);
let server = await startServer({ port: serverPort, keys: [ec, rsa, ed], alg: "ES256" });
const { issuer } = server;

const secretFile = path.join(dir, "secret");
writeFileSync(secretFile, SECRET);
const settings = path.join(dir, "settings.toml");
writeFileSync(settings, `
[gateway.limits]
refused_tokens_of_address_burst = 10000
[auth]
mode = "tokens"
resource = "${url}"
keys_refresh = "2s"
keys_cooldown = "1s"
[auth.scopes]
call = ["tools:call"]
read = ["tasks:read"]
cancel = ["tasks:cancel"]
[auth.implied_scopes]
"tasks:admin" = ["tasks:read", "tasks:cancel"]
[[auth.issuers]]
issuer = "${issuer}"
introspection_url = "${issuer}/token/introspection"
introspection_client_id = "gateway"
introspection_secret_file = "${secretFile}"
introspection_cache = "1s"
`);

const tried = { accepted: 0, refused: 0 };
const step = (name) => console.log(`- ${name}`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const METADATA = `http://127.0.0.1:${port}/.well-known/oauth-protected-resource/mcp`;

async function ask(bearer, method = "server/discover", params = {}) {
  const response = await post(url, method, params, bearer === undefined ? {} : { token: bearer });
  let last;
  for await (const message of messages(response)) last = message;
  return { status: response.status, challenge: response.headers.get("www-authenticate"), message: last };
}

async function accepted(what, bearer) {
  const { status, message } = await ask(bearer);
  assert.equal(status, 200, `${what}: ${JSON.stringify(message)}`);
  tried.accepted += 1;
}

async function refused(what, bearer) {
  const { status, challenge, message } = await ask(bearer);
  assert.equal(status, 401, `${what}: ${JSON.stringify(message)}`);
  assert.match(challenge, /^Bearer resource_metadata="[^"]+", error="invalid_token", error_description="[^"]+", scope="[^"]+"$/, what);
  assert.ok(challenge.includes(`resource_metadata="${METADATA}"`), `${what}: ${challenge}`);
  tried.refused += 1;
}

async function until(what, look) {
  const deadline = Date.now() + SOON_MS;
  while (!(await look())) {
    if (Date.now() > deadline) throw new Error(`not within ${SOON_MS / 1000} s: ${what}`);
    await sleep(100);
  }
}

await withStack({ gateways: 1, port, args: ["--config", settings] }, WITHIN_MS, async ({ logs, log }) => {
  step("without a token: where to get one, and no error");
  const bare = await ask(undefined);
  assert.equal(bare.status, 401);
  assert.equal(bare.challenge, `Bearer resource_metadata="${METADATA}", scope="tasks:cancel tasks:read tools:call"`);

  step("a published client finds its way from the 401 to a token, and works");
  const asked = server.requests("/token");
  const authProvider = new ClientCredentialsProvider({ clientId: "jwt-client", clientSecret: SECRET, expectedIssuer: issuer });
  const client = new Client({ name: "auth", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }));
  const greeted = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
  assert.equal(greeted.content[0].text, "Hello, Ada!");
  await client.close();
  assert.equal(server.requests("/token") - asked, 1, "one token was enough");
  tried.accepted += 1;

  const good = await token(issuer, "jwt-client", { resource: url, scope: "tools:call tasks:read" });
  step("the server's tokens");
  await accepted("a JWT for us", good);
  const opaque = await token(issuer, "opaque-client", { resource: url, scope: "tasks:read" });
  assert.ok(!opaque.includes("."), "an opaque token");
  await accepted("an opaque token for us", opaque);
  await refused("a JWT for another resource", await token(issuer, "jwt-client", { resource: "https://other.example.com/mcp" }));
  await refused("an opaque token for another resource", await token(issuer, "opaque-client", { resource: "https://other.example.com/mcp" }));
  await refused("a token for no resource", await token(issuer, "jwt-client", {}));

  step("forged tokens, signed with the server's own keys where that makes them more like good ones");
  for (const [what, is, made] of await forged({ issuer, url, good, keys: { ec, rsa, ed } })) {
    await (is === "good" ? accepted : refused)(what, made);
  }

  step("scopes: too few, enough, and a broader one");
  const call = { name: "greet", arguments: { name: "Ada" } };
  const reader = await token(issuer, "jwt-client", { resource: url, scope: "tasks:read" });
  const lacking = await ask(reader, "tools/call", call);
  assert.equal(lacking.status, 403);
  assert.equal(lacking.challenge, `Bearer resource_metadata="${METADATA}", error="insufficient_scope", `
    + `error_description="the access token lacks a scope", scope="tools:call"`);
  assert.equal((await ask(good, "tools/call", call)).status, 200);
  const broad = await token(issuer, "jwt-client", { resource: url, scope: "tasks:admin" });
  const unknown = { taskId: "01900000-0000-7000-8000-000000000000" };
  assert.equal((await ask(broad, "tasks/cancel", unknown)).status, 200, "admin implies cancel");
  assert.equal((await ask(reader, "tasks/cancel", unknown)).status, 403);

  step("a revoked opaque token");
  await revoke(issuer, "opaque-client", opaque);
  await until("the revoked token is refused", async () => (await ask(opaque)).status === 401);
  tried.refused += 1;

  step("the server is away: what was known is believed, what was not is nobody's fault");
  await server.stop();
  await accepted("a token by a known key", good);
  const away = await ask("opaque-and-never-seen");
  assert.deepEqual([away.status, away.challenge], [503, null]);

  step("it comes back with another key: new tokens at once, old ones no more");
  server = await startServer({ port: serverPort, keys: [next, rsa, ed], alg: "ES256" });
  const fresh = await token(issuer, "jwt-client", { resource: url, scope: "tools:call" });
  await until("a token by the new key is accepted", async () => (await ask(fresh)).status === 200);
  await until("one by the old key is refused", async () => (await ask(good)).status === 401);
  tried.accepted += 1;
  tried.refused += 1;

  step("no token is in a log");
  const texts = readdirSync(logs).filter((file) => file.endsWith(".log")).map((file) => readFileSync(path.join(logs, file), "utf8"));
  assert.ok(texts.join("").length > 500, "there are logs");
  for (const secret of [good, fresh, reader, broad, opaque, SECRET]) {
    assert.ok(!texts.concat(log()).some((text) => text.includes(secret)), "a log holds a token");
  }
});
await server.stop();
console.log(`${tried.accepted} tokens accepted and ${tried.refused} refused, as each deserves`);
process.exit(0);
