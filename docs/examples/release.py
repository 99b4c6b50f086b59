#!/usr/bin/env python3
"""Builds a version in parts, asks, and publishes it once."""
import json, sys

def say(type, **members):
    print(json.dumps({"type": type, **members}), flush=True)

def hear():
    message = json.loads(sys.stdin.readline() or '{"type": "stop"}')
    return message if message["type"] != "stop" else sys.exit(1)

def step(key, act):
    say("step", key=key)
    reply = hear()  # "go", or "done" by an earlier run
    if reply["type"] == "go":
        reply["output"] = act(reply["idempotencyKey"])
        say("end", key=key, output=reply["output"])
    return reply["output"]

def ask(key, message, schema):
    say("ask", key=key, message=message, schema=schema)
    return hear()["response"]  # unanswered, this run ends here

def publish(key):
    with open("releases.log", "a") as log:
        log.write(f"{version} {key}\n")
    return f"https://example.com/{version}"

start = hear()
version, built = start["arguments"]["version"], start["checkpoint"] or []
for part in [part for part in ["server", "client", "docs"] if part not in built]:
    say("progress", message=f"building the {part}", progress=len(built), total=3)
    say("checkpoint", value=built.append(part) or built)
wanted = {"type": "object", "properties": {"publish": {"type": "boolean"}}, "required": ["publish"]}
answer = ask("publish", f"Publish {version}?", wanted)
if answer["action"] == "accept" and answer["content"]["publish"]:
    say("result", text="published " + step("publish", publish))
else:
    say("result", text="not published")
