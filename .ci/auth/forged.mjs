// Tokens as an attacker would make them, and a few that only look odd: `[what, "good" or "bad", token]`.

import { createHmac } from "node:crypto";
import { CompactEncrypt, SignJWT, decodeJwt, exportSPKI } from "jose";
import { newKey } from "./server.mjs";

const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

export async function forged({ issuer, url, good, keys: { ec, rsa, ed } }) {
  const real = decodeJwt(good);
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: issuer, sub: "jwt-client", aud: url, iat: now, exp: now + 600, client_id: "jwt-client", jti: "x", scope: "tools:call" };
  const sign = (payload, header = {}, key = ec) =>
    new SignJWT(payload).setProtectedHeader({ alg: key.alg, kid: key.kid, typ: "at+jwt", ...header }).sign(key.privateKey);
  const but = (changes) => {
    const changed = { ...claims, ...changes };
    for (const name of Object.keys(changed)) if (changed[name] === undefined) delete changed[name];
    return changed;
  };
  const [head, body, signature] = good.split(".");
  const stranger = await newKey("ES256", ec.kid);
  const unknown = await newKey("ES256", "ec-unknown");
  // The oldest trick: the public key, which everybody knows, as the secret of an HMAC.
  const pem = await exportSPKI(rsa.publicKey);
  const hmac = (secret) => {
    const signed = `${encode({ alg: "HS256", kid: rsa.kid, typ: "at+jwt" })}.${encode(claims)}`;
    return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
  };
  const bare = (header, sig = "") => `${encode(header)}.${encode(claims)}.${sig}`;
  const twice = (payload) => {
    const signed = `${encode({ alg: "ES256", kid: ec.kid })}.${encode(payload)}`;
    return `${signed}.${signature}`;
  };
  const encrypted = await new CompactEncrypt(new TextEncoder().encode(good))
    .setProtectedHeader({ alg: "RSA-OAEP-256", enc: "A256GCM", cty: "JWT" })
    .encrypt((await newKey("RSA-OAEP-256", "enc")).publicKey);
  const list = [
    ["signed by RS256", "good", sign(claims, {}, rsa)],
    ["signed by EdDSA", "good", sign(claims, {}, ed)],
    ["typ JWT", "good", sign(claims, { typ: "JWT" })],
    ["aud among others", "good", sign(but({ aud: ["https://other.example.com", url] }))],
    ["aud with its host in capitals", "good", sign(but({ aud: url.replace("http://", "HTTP://") }))],
    ["expired within the leeway", "good", sign(but({ exp: now - 2 }))],
    ["nbf within the leeway", "good", sign(but({ nbf: now + 3 }))],
    ["alg none", "bad", bare({ alg: "none", typ: "at+jwt" })],
    ["alg None", "bad", bare({ alg: "None" })],
    ["alg none with the good signature", "bad", bare({ alg: "none" }, signature)],
    ["no signature", "bad", `${head}.${body}.`],
    ["two parts", "bad", `${head}.${body}`],
    ["another's claims under a good signature", "bad", `${head}.${encode({ ...real, sub: "mallory" })}.${signature}`],
    ["another header over a good signature", "bad", `${encode({ alg: "ES256", kid: ec.kid })}.${body}.${signature}`],
    ["HS256 with the public key as PEM", "bad", hmac(pem)],
    ["HS256 with the public key as PEM, trimmed", "bad", hmac(pem.trim())],
    ["HS256 with the public key as JWK", "bad", hmac(JSON.stringify({ kty: rsa.jwk.kty, n: rsa.jwk.n, e: rsa.jwk.e }))],
    ["HS256 with an empty secret", "bad", hmac("")],
    ["RS256 under the name of an EC key", "bad", sign(claims, { kid: ec.kid }, rsa)],
    ["ES256 under the name of an RSA key", "bad", sign(claims, { kid: rsa.kid })],
    ["PS256 by a key for RS256", "bad", sign(claims, { alg: "RS256", kid: "none-such" }, rsa)],
    ["by a stranger's key under a known name", "bad", sign(claims, {}, stranger)],
    ["by a key that brings itself along", "bad", sign(claims, { jwk: { kty: "EC", crv: "P-256", x: stranger.jwk.x, y: stranger.jwk.y } }, stranger)],
    ["by a key that nobody published", "bad", sign(claims, {}, unknown)],
    ["kid that is a path", "bad", sign(claims, { kid: "../../../../dev/null" }, unknown)],
    ["kid that is a statement", "bad", sign(claims, { kid: "x' UNION SELECT 'y" }, unknown)],
    ["typ of an ID token's logout", "bad", sign(claims, { typ: "logout+jwt" })],
    ["typ of a proof", "bad", sign(claims, { typ: "dpop+jwt" })],
    ["iss of another", "bad", sign(but({ iss: "https://evil.example.com" }))],
    ["iss with a slash", "bad", sign(but({ iss: `${issuer}/` }))],
    ["no iss", "bad", sign(but({ iss: undefined }))],
    ["aud of another", "bad", sign(but({ aud: "https://other.example.com/mcp" }))],
    ["aud with a slash", "bad", sign(but({ aud: `${url}/` }))],
    ["aud is the client (an ID token)", "bad", sign(but({ aud: "jwt-client", nonce: "n" }))],
    ["aud is the issuer", "bad", sign(but({ aud: issuer }))],
    ["no aud", "bad", sign(but({ aud: undefined }))],
    ["an empty aud", "bad", sign(but({ aud: [] }))],
    ["expired", "bad", sign(but({ exp: now - 60 }))],
    ["no exp", "bad", sign(but({ exp: undefined }))],
    ["not valid yet", "bad", sign(but({ nbf: now + 3600 }))],
    ["no sub", "bad", sign(but({ sub: undefined }))],
    ["an empty sub", "bad", sign(but({ sub: "" }))],
    ["bound to a key that is not shown", "bad", sign(but({ cnf: { jkt: "x" } }))],
    ["claims that are no JSON", "bad", twice("{")],
    ["aud twice", "bad", twice(`{"iss":"${issuer}","sub":"a","aud":"x","aud":"${url}","exp":${now + 600}}`)],
    ["an encrypted token", "bad", encrypted],
    ["an opaque token that nobody gave out", "bad", "made-up-token"],
    ["an API key that nobody has", "bad", "mtk_made-up"],
    ["of ten thousand bytes", "bad", sign(but({ pad: "x".repeat(10_000) }))],
  ];
  return Promise.all(list.map(async ([what, is, made]) => [what, is, await made]));
}
