// The authorization server: tokens for clients that act for themselves (client credentials), as JWTs
// (RFC 9068) or opaque with introspection (RFC 7662), for the resource that is asked for (RFC 8707).

import { createServer } from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import Provider, { interactionPolicy } from "oidc-provider";

export const SECRET = "a secret of sixty-four characters, which is as long as it must be";
const SCOPES = "tools:call tasks:read tasks:cancel tasks:admin";

const client = (id, more = {}) => ({
  client_id: id,
  client_secret: SECRET,
  grant_types: ["client_credentials"],
  redirect_uris: [],
  response_types: [],
  scope: SCOPES,
  ...more,
});

/// A new signing key: both halves.
export async function newKey(alg, kid, options = {}) {
  const pair = await generateKeyPair(alg, { extractable: true, ...options });
  const jwk = { ...(await exportJWK(pair.privateKey)), kid, alg, use: "sig" };
  return { kid, alg, jwk, privateKey: pair.privateKey, publicKey: pair.publicKey };
}

/// Starts the server at `port` with these keys, the first of each algorithm signing.
export async function startServer({ port, keys, alg }) {
  const issuer = `http://127.0.0.1:${port}`;
  const provider = new Provider(issuer, {
    jwks: { keys: keys.map((key) => key.jwk) },
    clients: [client("jwt-client"), client("opaque-client"), client("gateway", { scope: undefined })],
    scopes: SCOPES.split(" "),
    features: {
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (_ctx, asking) => asking.clientId === "gateway" },
      revocation: { enabled: true, allowedPolicy: () => true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (_ctx, resource, asking) => ({
          audience: resource,
          scope: SCOPES,
          accessTokenTTL: 600,
          accessTokenFormat: asking.clientId === "opaque-client" ? "opaque" : "jwt",
          jwt: { sign: { alg } },
        }),
      },
    },
    // It knows no subject of a client's opaque token by itself.
    extraTokenClaims: (_ctx, token) => (token.format === "opaque" ? { sub: token.clientId } : undefined),
    interactions: { policy: interactionPolicy.base() },
  });
  provider.on("server_error", (_ctx, error) => console.error("authorization server:", error));
  const counts = new Map();
  const handle = provider.callback();
  const server = createServer((request, response) => {
    const path = new URL(request.url, issuer).pathname;
    counts.set(path, (counts.get(path) ?? 0) + 1);
    handle(request, response);
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  return {
    issuer,
    requests: (path) => counts.get(path) ?? 0,
    stop: () => new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}

/// A token by client credentials.
export async function token(issuer, clientId, form) {
  const response = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: { Authorization: basic(clientId), "Content-Type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({ grant_type: "client_credentials", ...form }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(`no token for ${clientId}: ${JSON.stringify(body)}`);
  return body.access_token;
}

export async function revoke(issuer, clientId, revoked) {
  const response = await fetch(`${issuer}/token/revocation`, {
    method: "POST",
    headers: { Authorization: basic(clientId), "Content-Type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({ token: revoked, token_type_hint: "access_token" }),
  });
  if (!response.ok) throw new Error(`not revoked: HTTP ${response.status}`);
}

const basic = (clientId) =>
  `Basic ${Buffer.from(`${encodeURIComponent(clientId)}:${encodeURIComponent(SECRET).replaceAll("%20", "+")}`).toString("base64")}`;
