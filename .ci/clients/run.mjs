// Published MCP clients against one stack of three gateways behind the round-robin proxy.
// With names as arguments only those run.

import path from "node:path";
import { runChild } from "./child.mjs";
import { ROOT } from "./root.mjs";
import { withStack } from "./stack.mjs";
import { PYTHON_FASTMCP, PYTHON_MCP, PYTHON_MCP_LEGACY } from "./tools.mjs";

const GATEWAYS = 3;
const WORKERS = 2;
const CLIENT_WITHIN_MS = 150_000;
const WITHIN_MS = 6 * 60_000;

const here = (file) => path.join(ROOT, ".ci/clients", file);
const CLIENTS = {
  "typescript": [process.execPath, here("typescript.mjs")],
  "python mcp": [PYTHON_MCP, "-B", here("python_mcp.py")],
  "typescript legacy": [process.execPath, here("typescript_legacy.mjs")],
  "python mcp legacy": [PYTHON_MCP_LEGACY, "-B", here("python_mcp_legacy.py")],
  "python fastmcp": [PYTHON_FASTMCP, "-B", here("python_fastmcp.py")],
  "curl lesson": ["bash", path.join(ROOT, ".ci/lesson")],
};

const asked = process.argv.slice(2);
const chosen = Object.entries(CLIENTS).filter(([name]) => asked.length === 0 || asked.includes(name));
if (chosen.length === 0) throw new Error(`no client is called ${asked.join(", ")}: there are ${Object.keys(CLIENTS).join(", ")}`);

process.exitCode = await withStack({ gateways: GATEWAYS, workers: WORKERS }, WITHIN_MS, async ({ url, counts, log }) => {
  // Side by side: they are different callers of one system, and each waits most of its time.
  const ends = await Promise.all(chosen.map(async ([name, [command, ...args]]) => {
    const end = await runChild(command, [...args, url], { withinMs: CLIENT_WITHIN_MS, cwd: ROOT });
    console.log(`${end.code === 0 ? "passed" : "FAILED"} ${name} (${end.seconds.toFixed(1)} s)`);
    if (end.code !== 0) console.log(end.output.replace(/^/gm, "  | "));
    return end.code === 0;
  }));
  const failed = ends.filter((good) => !good).length;
  if (failed > 0 && process.env.CLIENTS_STACK_LOG) console.log(`--- stack ---\n${log()}`);
  if (counts.some((count) => count === 0)) throw new Error(`a gateway was never asked: ${counts}`);
  console.log(`requests per gateway: ${counts.join(", ")}`);
  console.log(`clients: ${ends.length - failed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}).catch((error) => {
  console.error(error.stack);
  console.log(`clients: 0 passed, ${chosen.length} failed`);
  return 1;
});
