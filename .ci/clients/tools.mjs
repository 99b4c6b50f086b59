// Where .ci/install puts what the client checks need.

import path from "node:path";
import { ROOT } from "./root.mjs";

const TOOLS = process.env.MCP_TASKS_TOOLS ?? path.join(ROOT, ".tools");

/// The published npm packages.
export const MODULES = path.join(TOOLS, "node/node_modules");
/// Python with PyPI `mcp`, and Python with `fastmcp[tasks]`: their requirements exclude one another's freedom.
export const PYTHON_MCP = path.join(TOOLS, "python-mcp/bin/python");
export const PYTHON_FASTMCP = path.join(TOOLS, "python-fastmcp/bin/python");
/// Python with PyPI `mcp` 1.x, which speaks MCP 2025-11-25.
export const PYTHON_MCP_LEGACY = path.join(TOOLS, "python-mcp-legacy/bin/python");
/// The published MCP server that shows everything a server may do.
export const EVERYTHING = path.join(TOOLS, "upstreams/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
