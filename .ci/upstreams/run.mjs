// mcp-tasks in front of servers that this project did not write. Each check is a call by a client
// that declared tasks, and what became of it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { result, call } from "../clients/rpc.mjs";
import { freePort, withStack } from "../clients/stack.mjs";
import { EVERYTHING, PYTHON_FASTMCP } from "../clients/tools.mjs";

const WITHIN_MS = 6 * 60_000;
const SOON_MS = 90_000;
const here = import.meta.dirname;
const dir = mkdtempSync(path.join(os.tmpdir(), "mcp-tasks-upstreams-"));
const ledger = path.join(dir, "ledger");
writeFileSync(ledger, "");

const servers = [];
function server(command, args, env) {
  const child = spawn(command, args, { stdio: "ignore", env: { ...process.env, ...env } });
  servers.push(child);
}
process.on("exit", () => {
  for (const child of servers) child.kill("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
});

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/// Waits until `look` gives something true.
async function until(what, look) {
  const deadline = Date.now() + SOON_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`not within ${SOON_MS / 1000} s: ${what}`);
    await sleep(100);
  }
}

const everythingPort = await freePort();
const pythonPort = await freePort();
server(process.execPath, [EVERYTHING, "streamableHttp"], { PORT: String(everythingPort) });
server(PYTHON_FASTMCP, ["-B", path.join(here, "server.py"), String(pythonPort), ledger]);

const tools = path.join(dir, "tools.toml");
writeFileSync(tools, `
[defaults]
inline_budget = "1s"

[[upstream]]
name = "everything"
prefix = "http_"
url = "http://127.0.0.1:${everythingPort}/mcp"

[[upstream]]
name = "everything by stdio"
prefix = "stdio_"
command = [${JSON.stringify(process.execPath)}, ${JSON.stringify(EVERYTHING)}, "stdio"]
uri_prefix = "stdio+"
[upstream.tools.trigger-long-running-operation]
effects = "once"

[[upstream]]
name = "python"
prefix = "py_"
url = "http://127.0.0.1:${pythonPort}/mcp"

[[upstream]]
name = "python, greeted as before"
prefix = "pyold_"
url = "http://127.0.0.1:${pythonPort}/mcp"
protocol = "2025-11-25"
`);
const settings = path.join(dir, "settings.toml");
// A lost worker is noticed while a test waits.
writeFileSync(settings, `[postgres]\nlease = "3s"\nheartbeat = "1s"\n`);

const args = ["--tools", tools, "--config", settings];
process.exitCode = await withStack({ gateways: 1, workers: 1, args }, WITHIN_MS, async ({ url, workerPid, log }) => {
  const options = {};
  const start = async (name, args) => {
    const created = await result(url, "tools/call", { name, arguments: args }, options);
    assert.equal(created.resultType, "task", `${name}: ${JSON.stringify(created)}`);
    return created.taskId;
  };
  const get = (taskId) => result(url, "tasks/get", { taskId }, options);
  const ended = (taskId) => until(`the end of ${taskId}`, async () => {
    const task = await get(taskId);
    return ["completed", "failed", "cancelled"].includes(task.status) && task;
  });
  const saying = (taskId, words) => until(`"${words}" of ${taskId}`, async () => {
    const task = await get(taskId);
    assert.equal(task.status, "working", JSON.stringify(task));
    return task.statusMessage?.includes(words);
  });
  const inline = async (name, args) => {
    const answer = await result(url, "tools/call", { name, arguments: args }, options);
    if (answer.resultType !== "task") return answer;
    return (await ended(answer.taskId)).result;
  };
  /// Kills the only worker, which is started again.
  const kill = async () => {
    const pid = workerPid();
    process.kill(pid, "SIGKILL");
    await until("another worker", async () => ![undefined, pid].includes(workerPid()));
  };
  const count = (word) => readFileSync(ledger, "utf8").split("\n").filter((line) => line === word).length;

  const checks = {
    "tools are listed under their prefixes, as their servers list them": async () => {
      const listed = await until("all tools", async () => {
        const { tools } = await result(url, "tools/list", {}, options);
        const has = (name) => tools.some((tool) => tool.name === name);
        return ["http_echo", "stdio_echo", "py_look"].every(has) && tools;
      });
      const tool = listed.find((tool) => tool.name === "http_get-structured-content");
      assert.equal(tool.title, "Get Structured Content Tool");
      assert.equal(tool.annotations.readOnlyHint, true);
      assert.equal(tool.outputSchema.type, "object");
      // It only runs as a task of 2025-11-25.
      assert.ok(listed.some((tool) => tool.name === "http_simulate-research-query"));
    },
    "arguments, content and structured content pass": async () => {
      for (const prefix of ["http_", "stdio_"]) {
        const echo = await inline(`${prefix}echo`, { message: "Grüße" });
        assert.equal(echo.content[0].text, "Echo: Grüße");
        const image = await inline(`${prefix}get-tiny-image`, {});
        assert.ok(image.content.some((block) => block.type === "image" && block.mimeType === "image/png"));
        const weather = await inline(`${prefix}get-structured-content`, { location: "Chicago" });
        assert.equal(typeof weather.structuredContent.temperature, "number");
        const link = await inline(`${prefix}get-resource-links`, { count: 2 });
        assert.ok(link.content.some((block) => block.type === "resource_link"));
      }
      const failed = await inline("py_fail", {});
      assert.equal(failed.isError, true);
      assert.match(failed.content[0].text, /no such thing/);
    },
    "a slow call becomes a task that says how far it is": async () => {
      const id = await start("http_trigger-long-running-operation", { duration: 4, steps: 8 });
      await saying(id, "of 8");
      const task = await ended(id);
      assert.match(task.result.content[0].text, /Long running operation completed/);
    },
    "a killed worker: read-only calls are made again": async () => {
      const ids = [
        await start("http_trigger-long-running-operation", { duration: 6, steps: 12 }),
        await start("py_look", { seconds: 6 }),
      ];
      await saying(ids[0], "of 12");
      await saying(ids[1], "second 1");
      await kill();
      const [everything, python] = [await ended(ids[0]), await ended(ids[1])];
      assert.match(everything.result.content[0].text, /Long running operation completed/);
      assert.deepEqual(python.result.structuredContent, { looked: 6 });
      assert.equal(count("look"), 2);
    },
    "a killed worker: calls that must not be repeated are in doubt": async () => {
      const ids = [
        await start("stdio_trigger-long-running-operation", { duration: 60, steps: 120 }),
        await start("py_act", { seconds: 60 }),
      ];
      await saying(ids[0], "of 120");
      await saying(ids[1], "second 1");
      await kill();
      for (const id of ids) {
        const task = await ended(id);
        assert.equal(task.status, "failed");
        assert.equal(task.error.data.reason, "step_in_doubt", JSON.stringify(task));
      }
      assert.equal(count("act"), 1);
    },
    "a killed worker: a task of the server's own is followed on": async () => {
      const id = await start("py_build", { seconds: 8 });
      await until("its beginning", async () => count("build") === 1);
      await kill();
      const task = await ended(id);
      assert.equal(task.result?.content[0].text, "built", JSON.stringify(task));
      assert.equal(count("build"), 1);
    },
    "tasks of 2025-11-25 are followed, and their questions answered": async () => {
      const plain = await start("http_simulate-research-query", { topic: "whales" });
      await saying(plain, "...");
      assert.match((await ended(plain)).result.content[0].text, /Research Report: whales/);
      for (const prefix of ["http_", "stdio_"]) {
        const id = await start(`${prefix}simulate-research-query`, { topic: "python", ambiguous: true });
        const asking = await until("a question", async () => {
          const task = await get(id);
          assert.ok(["working", "input_required"].includes(task.status), JSON.stringify(task));
          return task.status === "input_required" && task;
        });
        const [key] = Object.keys(asking.inputRequests);
        const inputResponses = { [key]: { action: "accept", content: { interpretation: "snake" } } };
        await result(url, "tasks/update", { taskId: id, inputResponses }, options);
        const task = await ended(id);
        assert.match(task.result?.content[0].text ?? JSON.stringify(task), /Research Report: python \(snake\)/);
      }
    },
    "a killed worker: a task of 2025-11-25 that its server forgets with the session is in doubt": async () => {
      const id = await start("http_simulate-research-query", { topic: "owls" });
      await saying(id, "...");
      await kill();
      const task = await ended(id);
      assert.equal(task.error?.data?.reason, "step_in_doubt", JSON.stringify(task));
    },
    "resources, prompts and completions pass, to a published client": async () => {
      const script = path.join(here, "../clients/typescript_upstreams.mjs");
      const child = spawn(process.execPath, [script, url], { stdio: ["ignore", "inherit", "inherit"] });
      const code = await new Promise((resolve) => child.once("exit", resolve));
      assert.equal(code, 0);
    },
    "questions of both revisions are asked, and answered": async () => {
      const answer = async (name, content) => {
        const id = await start(name, {});
        const asking = await until("a question", async () => {
          const task = await get(id);
          assert.ok(["working", "input_required"].includes(task.status), JSON.stringify(task));
          return task.status === "input_required" && task;
        });
        const [key, request] = Object.entries(asking.inputRequests)[0];
        assert.equal(request.method, "elicitation/create");
        const inputResponses = { [key]: { action: "accept", content } };
        await result(url, "tasks/update", { taskId: id, inputResponses }, options);
        const task = await ended(id);
        return task.result?.content[0].text ?? JSON.stringify(task);
      };
      assert.equal(await answer("py_paint", { colour: "green" }), "painted green");
      assert.equal(await answer("py_paint_later", { colour: "blue" }), "painted blue");
      // Older servers ask in the middle of the call, whose connection is held meanwhile.
      assert.equal(await answer("pyold_ask", { value: "red" }), "accept red");
      for (const prefix of ["http_", "stdio_"]) {
        const text = await answer(`${prefix}trigger-elicitation-request`, { name: "Ada" });
        assert.match(text, /provided the requested information/);
      }
    },
    "a cancelled call is cancelled there": async () => {
      const id = await start("py_look", { seconds: 60 });
      await saying(id, "second 1");
      await result(url, "tasks/cancel", { taskId: id }, options);
      assert.equal((await ended(id)).status, "cancelled");
      // So is a task of its own.
      const built = count("built");
      const building = await start("py_build", { seconds: 10 });
      await until("its beginning", async () => count("build") === 2);
      await result(url, "tasks/cancel", { taskId: building }, options);
      assert.equal((await ended(building)).status, "cancelled");
      assert.equal(count("built"), built);
    },
    "arguments that do not fit are refused before": async () => {
      const answer = await call(url, "tools/call", { name: "http_echo", arguments: { message: 3 } }, options);
      assert.equal(answer.result.isError, true);
    },
  };
  const chosen = process.argv.slice(2);
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    if (chosen.length > 0 && !chosen.some((word) => name.includes(word))) continue;
    const began = Date.now();
    try {
      await check();
      console.log(`passed ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack.replace(/^/gm, "  | ")}`);
    }
  }
  if (failed > 0 && process.env.UPSTREAMS_STACK_LOG) console.log(`--- stack ---\n${log()}`);
  console.log(`upstreams: ${failed} failed`);
  return failed === 0 ? 0 : 1;
}).catch((error) => {
  console.error(error.stack);
  return 1;
});
process.exit();
