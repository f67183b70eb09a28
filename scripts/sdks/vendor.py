"""Vendors on loopback that answer as GitHub, OpenAI, Stripe and SQS do, as far as their SDKs look.

Each takes 20 requests in any second (a sliding log), and refuses more with 429. At /report it says what arrived, what was refused,
which requests carried a caller's token, and which were sent twice without a key.
"""

import collections
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT = 20
TOKEN = sys.argv[1]
lock = threading.Lock()
logs = collections.defaultdict(collections.deque)
report = {"arrived": 0, "refused": 0, "leaked": 0, "keys": 0, "broken": 0}


class Vendor(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=utf-8")
        self.send_header("content-length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_any(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode(errors="replace")
        if self.headers.get("transfer-encoding"):
            raise ValueError("the vendor expects a length")
        if self.path == "/report":
            return self.answer(200, report)
        vendor = self.path.split("/")[1]
        now = time.monotonic()
        with lock:
            log = logs[vendor]
            while log and now - log[0] > 1.0:
                log.popleft()
            report["arrived"] += 1
            report["leaked"] += TOKEN in str(self.headers) + self.path
            report["keys"] += self.headers.get("idempotency-key") is not None
            report["broken"] += "break here" in body
            if len(log) >= LIMIT:
                report["refused"] += 1
                return self.answer(429, {"error": {"message": "too many"}}, [("retry-after", "1")])
            log.append(now)
        if vendor != "sqs" and "vendor-key" not in (self.headers.get("authorization") or ""):
            return self.answer(401, {"message": "wrong key", "error": {"message": "wrong key"}})
        getattr(self, "of_" + vendor)(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

    def of_github(self, _):
        if "/issues" in self.path:
            page = int(self.path.split("page=")[-1]) if "&page=" in self.path or "?page=" in self.path else 1
            base = f"http://127.0.0.1:{self.server.server_port}/github"
            links = f'<{base}/repos/a/b/issues?page={page + 1}>; rel="next"' if page < 4 else ""
            issues = [{"number": page * 10 + n, "title": "t", "url": base} for n in range(3)]
            return self.answer(200, issues, [("link", links)] if links else [])
        if self.path.startswith("/github/repos/"):
            base = f"http://127.0.0.1:{self.server.server_port}/github"
            return self.answer(200, {"full_name": "a/b", "name": "b", "url": base + "/repos/a/b"})
        self.answer(200, {"login": "octo", "id": 1})

    def of_openai(self, body):
        asked = json.loads(body or "{}")
        if "break here" in body:
            self.close_connection = True
            return self.connection.close()
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for n in range(5):
                chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": str(n)}}]}
                data = f"data: {json.dumps(chunk)}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
                time.sleep(0.2)
            data = b"data: [DONE]\n\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")
            return
        message = {"role": "assistant", "content": "pong"}
        self.answer(200, {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message}]})

    def of_stripe(self, _):
        self.answer(200, {"id": "cus_1", "object": "customer"})

    def of_sqs(self, _):
        self.answer(200, {"QueueUrls": ["http://q/1"]})


server = ThreadingHTTPServer(("127.0.0.1", 0), Vendor)
print(server.server_port, flush=True)
server.serve_forever()
