// A round-robin reverse proxy: every request, not every connection, goes to the next gateway.
//
// It stands in for a load balancer without affinity, so it adds nothing: method, path, body and
// every header (Host and Origin too: the gateways judge them) pass as they came; only hop-by-hop
// headers are dropped. Bytes are passed on as they arrive, so event streams are never held back,
// and a side that goes away takes the other side with it.

import http from "node:http";

const HOP_BY_HOP = new Set(["connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"]);

function endToEnd(rawHeaders) {
  const kept = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (!HOP_BY_HOP.has(rawHeaders[i].toLowerCase())) kept.push(rawHeaders[i], rawHeaders[i + 1]);
  }
  return kept;
}

/// Starts the proxy in front of `targets` (MCP endpoint URLs) on a free loopback port.
/// `counts[i]` tells how many requests target `i` was given.
export async function startProxy(targets) {
  const gateways = targets.map((target) => new URL(target));
  const counts = gateways.map(() => 0);
  let turn = 0;

  const server = http.createServer((request, response) => {
    const index = turn++ % gateways.length;
    counts[index] += 1;
    response.sendDate = false;

    const upstream = http.request({
      host: gateways[index].hostname,
      port: gateways[index].port,
      method: request.method,
      path: request.url,
      headers: endToEnd(request.rawHeaders),
      agent: false,
    });
    upstream.on("response", (answer) => {
      response.writeHead(answer.statusCode, answer.statusMessage, endToEnd(answer.rawHeaders));
      response.flushHeaders();
      answer.pipe(response);
      // A gateway that dies in the middle of an answer must look like that, not like its end.
      answer.on("error", () => response.destroy());
      answer.on("close", () => answer.complete || response.destroy());
    });
    upstream.on("error", (error) => {
      if (response.headersSent || response.destroyed) return void response.destroy();
      response.writeHead(502, { "Content-Type": "text/plain" });
      response.end(`gateway ${gateways[index].host} did not answer: ${error.message}\n`);
    });
    response.on("close", () => response.writableFinished || upstream.destroy());
    request.on("error", () => upstream.destroy());
    request.pipe(upstream);
  });
  // Only the two ends decide when something took too long.
  server.requestTimeout = 0;
  server.headersTimeout = 0;
  server.timeout = 0;
  server.keepAliveTimeout = 300_000;

  await new Promise((resolve, reject) => server.once("error", reject).listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}${gateways[0].pathname}`,
    counts,
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}
