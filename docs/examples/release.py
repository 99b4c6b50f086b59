#!/usr/bin/env python3
"""Builds a version in parts, asks, and publishes it once."""
import json, sys

def say(type, **members):
    print(json.dumps({"type": type, **members}), flush=True)

def hear():
    message = json.loads(sys.stdin.readline() or '{"type": "stop"}')
    return message if message["type"] != "stop" else sys.exit(1)

start = hear()
version, built = start["arguments"]["version"], start["checkpoint"] or []
for part in [part for part in ["server", "client", "docs"] if part not in built]:
    say("progress", message=f"building the {part}", progress=len(built), total=3)
    say("checkpoint", value=built.append(part) or built)
form = {"type": "object", "properties": {"publish": {"type": "boolean"}}, "required": ["publish"]}
say("ask", key="publish", message=f"Publish {version}?", schema=form)
answer = hear()["response"]  # unanswered, this run ends here, and the next one begins at the top
if answer["action"] != "accept" or not answer["content"]["publish"]:
    sys.exit(say("result", text="not published"))
say("step", key="publish")
reply = hear()  # "go", or "done" by an earlier run
if reply["type"] == "go":
    with open("releases.log", "a") as log:
        log.write(f"{version} {reply['idempotencyKey']}\n")
    say("end", key="publish", output=f"https://example.com/{version}")
url = reply["output"] if reply["type"] == "done" else f"https://example.com/{version}"
say("result", text=f"published {url}")
