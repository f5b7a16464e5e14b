"""wandb_server.py -- as much of a W&B server as `wandb sync` needs; prints what it was sent.   SPDX-License-Identifier: MIT

    wandb_server.py PORT_FILE

Writes its port into PORT_FILE. On SIGTERM prints one JSON object: the run's upserts, the lines of its files, and files uploaded.
"""
import gzip
import http.server
import json
import os
import re
import signal
import sys
import threading

told = {"upserts": [], "lines": {}, "uploaded": [], "exitcode": None}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply({})

    def do_PUT(self):
        self.body()
        told["uploaded"].append(os.path.basename(self.path))
        self.reply({})

    def do_POST(self):
        data = self.body()
        if self.path == "/graphql":
            return self.reply({"data": self.answer(json.loads(data))})
        if self.path.endswith("/file_stream"):
            sent = json.loads(data)
            for name, chunk in (sent.get("files") or {}).items():
                told["lines"].setdefault(name, []).extend(chunk["content"])
            if sent.get("complete"):
                told["exitcode"] = sent["exitcode"]
        return self.reply({})

    def answer(self, request):
        query, given = request["query"], request.get("variables") or {}
        if "upsertBucket" in query:
            told["upserts"].append(given)
            entity = {"id": "1", "name": "me"}
            project = {"id": "2", "name": given.get("project"), "entity": entity}
            bucket = {"id": "3", "name": given.get("name"), "config": "{}", "historyLineCount": 0, "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": f, "uploadUrl": "http://%s:%d/up/%s" % (*self.server.server_address, f)} for f in given["files"]]
            return {"createRunFiles": {"runID": "3", "uploadHeaders": [], "files": files}}
        return {name: None for name in re.findall(r"(\w+)\s*:\s*__type", query)}


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.handle_error = lambda *_: None
with open(sys.argv[1] + ".tmp", "w") as out:
    out.write(str(server.server_address[1]))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(0.05)
print(json.dumps(told))
