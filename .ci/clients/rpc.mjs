// Plain JSON-RPC over fetch, for the checks that no published client can make.

const VERSION = "2026-07-28";
const TASKS = "io.modelcontextprotocol/tasks";

export const DECLARED = { elicitation: {}, sampling: {}, extensions: { [TASKS]: {} } };

let lastId = 0;

/// Sends one request and resolves to the fetch response, body unread.
export function post(url, method, params, { token, capabilities = DECLARED, id = ++lastId, signal } = {}) {
  const name = params.name ?? params.taskId;
  return fetch(url, {
    method: "POST",
    signal,
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": VERSION,
      "Mcp-Method": method,
      ...(name === undefined ? {} : { "Mcp-Name": name }),
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id,
      method,
      params: {
        ...params,
        _meta: {
          ...params._meta,
          "io.modelcontextprotocol/protocolVersion": VERSION,
          "io.modelcontextprotocol/clientInfo": { name: "mcp-tasks-checks", version: "1.0.0" },
          "io.modelcontextprotocol/clientCapabilities": capabilities,
        },
      },
    }),
  });
}

/// Yields every JSON-RPC message of an answer, whether it came as JSON or as an event stream.
export async function* messages(response) {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    yield await response.json();
    return;
  }
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
  }
}

/// Sends one request and resolves to its response message (`{ result }` or `{ error }`).
export async function call(url, method, params, options = {}) {
  const id = options.id ?? ++lastId;
  const response = await post(url, method, params, { ...options, id });
  let last;
  for await (const message of messages(response)) {
    if (message.id === id && message.method === undefined) return message;
    last = message;
  }
  throw new Error(`${method}: HTTP ${response.status} without a response, at its end ${JSON.stringify(last)}`);
}

/// As `call`, for a request that must succeed.
export async function result(url, method, params, options) {
  const response = await call(url, method, params, options);
  if (response.error) throw new Error(`${method}: ${JSON.stringify(response.error)}`);
  return response.result;
}
