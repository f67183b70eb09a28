"""Vendors on loopback that answer as GitHub, OpenAI, Stripe and SQS do, as far as their SDKs look.

Each takes 20 requests in any second (a sliding log), and refuses more with 429. At /report it says what arrived, what was refused,
how many requests carried what is meant for the gateway, which idempotency keys came how often, and how often each request came whose connection
the vendor broke.

A request with `break-NAME` in its body gets no response: the connection closes. With `break-once-NAME` only the first does.
"""

import base64
import collections
import hashlib
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT = 20
# Between two chunks of a streamed response.
SPACING = 0.3
TOKEN = sys.argv[1]
# As a caller states it: by itself, or as the password of basic authentication.
TOKENS = (TOKEN, base64.b64encode(f"acme:{TOKEN}".encode()).decode())
lock = threading.Lock()
logs = collections.defaultdict(collections.deque)
report = {"arrived": 0, "refused": 0, "leaked": 0, "keys": {}, "broken": {}}


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

    def leaks(self, body):
        """Whether the request has something in it that is meant for the gateway alone."""
        text = str(self.headers) + self.path + body
        names = [name.lower() for name in self.headers]
        return any(token in text for token in TOKENS) or any(
            name == "proxy-authorization" or name.startswith("integration-") for name in names
        )

    def handle_any(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode(errors="replace")
        if self.headers.get("transfer-encoding"):
            raise ValueError("the vendor expects a length")
        if self.path == "/report":
            return self.answer(200, report)
        vendor = self.path.split("/")[1]
        key = self.headers.get("idempotency-key")
        broken = re.search(r"break-(once-)?[a-z-]+", body)
        now = time.monotonic()
        with lock:
            log = logs[vendor]
            while log and now - log[0] > 1.0:
                log.popleft()
            report["arrived"] += 1
            report["leaked"] += self.leaks(body)
            if len(log) >= LIMIT:
                report["refused"] += 1
                return self.answer(429, {"error": {"message": "too many"}}, [("retry-after", "1")])
            log.append(now)
            if key:
                report["keys"][key] = report["keys"].get(key, 0) + 1
            if broken:
                report["broken"][broken[0]] = report["broken"].get(broken[0], 0) + 1
        if broken and not (broken[1] and report["broken"][broken[0]] > 1):
            self.close_connection = True
            return self.connection.close()
        if vendor != "sqs" and "vendor-key" not in (self.headers.get("authorization") or ""):
            return self.answer(401, {"message": "wrong key", "error": {"message": "wrong key"}})
        getattr(self, "of_" + vendor)(body, key)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

    def of_github(self, *_):
        base = f"http://127.0.0.1:{self.server.server_port}/github"
        if self.path.startswith("/github/users/"):
            return self.answer(404, {"message": "Not Found", "documentation_url": "https://docs.example", "status": "404"})
        if "/issues" in self.path:
            page = int(self.path.split("page=")[-1]) if "&page=" in self.path or "?page=" in self.path else 1
            links = f'<{base}/repos/a/b/issues?page={page + 1}>; rel="next"' if page < 4 else ""
            issues = [{"number": page * 10 + n, "title": "t", "url": base} for n in range(3)]
            return self.answer(200, issues, [("link", links)] if links else [])
        if self.path.startswith("/github/repos/"):
            return self.answer(200, {"full_name": "a/b", "name": "b", "url": base + "/repos/a/b"})
        self.answer(200, {"login": "octo", "id": 1})

    def of_openai(self, body, _):
        asked = json.loads(body or "{}")
        if asked.get("model") == "missing":
            error = {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found", "param": None}
            return self.answer(404, {"error": error})
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for n in range(5):
                # The caller compares the time at which a chunk arrives with that at which it was sent.
                choice = {"index": 0, "delta": {"content": str(n)}}
                chunk = {"id": str(time.time()), "object": "chat.completion.chunk", "choices": [choice]}
                data = f"data: {json.dumps(chunk)}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
                time.sleep(SPACING)
            data = b"data: [DONE]\n\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")
            return
        message = {"role": "assistant", "content": "pong"}
        self.answer(200, {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message}]})

    def of_stripe(self, _, key):
        if self.command == "GET":
            error = {"type": "invalid_request_error", "code": "resource_missing", "message": "No such customer"}
            return self.answer(404, {"error": error})
        self.answer(200, {"id": f"cus_{key}", "object": "customer"})

    def of_sqs(self, body, _):
        target = self.headers.get("x-amz-target") or ""
        if target.endswith("GetQueueUrl"):
            kind = "com.amazonaws.sqs#QueueDoesNotExist"
            return self.answer(400, {"__type": kind, "message": "The specified queue does not exist."})
        if target.endswith("SendMessage"):
            text = json.loads(body)["MessageBody"]
            return self.answer(200, {"MessageId": "m", "MD5OfMessageBody": hashlib.md5(text.encode()).hexdigest()})
        self.answer(200, {"QueueUrls": ["http://q/1"]})


server = ThreadingHTTPServer(("127.0.0.1", 0), Vendor)
print(server.server_port, flush=True)
server.serve_forever()
