#!/usr/bin/env python3
"""A job service: takes work on, answers 202, and calls back when it is done."""
import json, sys, threading, time, urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

jobs, lock = {}, threading.Lock()

def call_back(url, report):
    request = urllib.request.Request(url, json.dumps(report).encode(), {"Content-Type": "application/json"})
    while True:
        try:
            return urllib.request.urlopen(request, timeout=30).status
        except urllib.error.HTTPError as refused:
            if refused.code < 500 and refused.code != 429:  # kept before, too late, or not wanted any more
                return refused.code
        except OSError:
            pass
        time.sleep(1)  # the same body again does no harm

def work(job):
    call_back(job["url"], {"progress": 0, "total": 2, "message": f"rendering {job['scene']}"})
    if not job["stop"].wait(job["seconds"]):
        call_back(job["url"], {"structured": {"frames": 2}})

class Renders(BaseHTTPRequestHandler):
    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with lock:
            self.answer(200, {key: job["scene"] for key, job in jobs.items() if not job["stop"].is_set()})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        path = urlsplit(self.path)
        if path.path.endswith("/cancel"):
            job = jobs.get(parse_qs(path.query)["key"][0])
            if job:
                job["stop"].set()
            return self.answer(200 if job else 404, {})
        key = self.headers["Idempotency-Key"]
        with lock:
            new = key not in jobs
            if new:
                scene = path.path.rsplit("/", 1)[1]
                jobs[key] = {"scene": scene, "seconds": asked.get("seconds", 5), "url": asked["notify"], "stop": threading.Event()}
        if new:
            threading.Thread(target=work, args=(jobs[key],), daemon=True).start()
        self.answer(202, {"job": key})

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Renders).serve_forever()
