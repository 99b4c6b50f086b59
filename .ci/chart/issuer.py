"""An issuer of access tokens, for tests."""

import base64
import json
import subprocess
import time

ISSUER, AUDIENCE = "https://issuer.test/", "https://mcp.test/mcp"


def openssl(*arguments, given=None):
    return subprocess.run(["openssl", *map(str, arguments)], input=given, capture_output=True, check=True).stdout


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs tokens by RS256."""

    def __init__(self, folder, name="issuer"):
        self.private = folder / f"{name}.key"
        openssl("genrsa", "-out", self.private, "2048")
        openssl("rsa", "-in", self.private, "-pubout", "-out", folder / f"{name}.pem")

    def jwks(self):
        """Its public key, as issuers show it."""
        modulus = openssl("rsa", "-in", self.private, "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "n": text(bytes.fromhex(modulus)), "e": "AQAB"}
        return json.dumps({"keys": [key]})

    def token(self, header=None, signature=None, **claims):
        now = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", **(header or {})}
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, **claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        told = ".".join(text(json.dumps(part).encode()) for part in (header, claims))
        if signature is None:
            signature = text(openssl("dgst", "-sha256", "-sign", self.private, given=told.encode()))
        return f"{told}.{signature}"
