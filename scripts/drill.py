#!/usr/bin/env python3
"""A drill for people on call: a vendor goes down and comes back, a tenant's key is revoked, the disk fills, a worker dies.

    cargo build -p integration-client-cli && scripts/drill.py [--pictures FOLDER]

After each it prints what the console, the metrics and the alert rules say, and fails where they do not say it. Needs `prometheus`
(Debian's package of that name), which evaluates docs/prometheus-alerts.yaml sixty times as fast: minutes are seconds. With
--pictures, which needs chromium and chromium-driver, it keeps what the console showed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/debug/integration-client"
TENANTS = ["acme", "bolt", "cobalt"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Vendor:
    """A vendor that can be taken away, and that can revoke a key."""

    def __init__(self):
        self.port, self.revoked, self.server = free_port(), set(), None

    def up(self):
        revoked = self.revoked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                key = (self.headers.get("authorization") or "").removeprefix("Bearer ")
                body = b'{"error":"this key was revoked"}' if key in revoked else b"{}"
                self.send_response(401 if key in revoked else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def down(self):
        self.server.shutdown()
        self.server.server_close()


class Gateway:
    """A process of `integration-client serve`."""

    def __init__(self, folder, vendors, *options):
        environment = {**os.environ, **{f"DRILL_{tenant.upper()}": f"key-{tenant}" for tenant in TENANTS}}
        command = [PROGRAM, "serve", "--listen", "127.0.0.1:0", "--vendors", vendors, "--store", folder / "queue.db", *options]
        self.log = open(folder / f"serve{len(list(folder.glob('serve*')))}.log", "w")
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True,
            # Python ignores the signal of a file that is too large, and so must the gateway: a full disk sends none.
            restore_signals=False,
        )
        self.url = self.token = None
        while not self.token:
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"the gateway ended: {Path(self.log.name).read_text()}")
            if line.startswith("base URL: "):
                self.url = line.split()[2].removesuffix("/TENANT/VENDOR")
            if line.startswith("token: "):
                self.token = line.split()[1]

    def ask(self, path, method="GET", **headers):
        data = b'{"order": 1}' if method == "POST" else None
        request = urllib.request.Request(self.url + path, data=data, method=method)
        for name, value in {"authorization": f"Bearer {self.token}", **headers}.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def console(self, path):
        status, body = self.ask(f"/~/console/api/{path}")
        return json.loads(body) if status == 200 else {"status": status, "error": body}

    def metric(self, name):
        _, body = self.ask("/~/metrics")
        lines = [line for line in body.splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines) if lines else None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Prometheus:
    """The real one, with the rules of this repository at sixty times their speed."""

    def __init__(self, folder, gateways):
        rules = (ROOT / "docs/prometheus-alerts.yaml").read_text()
        rules = re.sub(r"\[(\d+)m\]", r"[\1s]", rules)
        rules = re.sub(r"(for:|offset) (\d+)m", r"\1 \2s", rules)
        rules = rules.replace("for: 1h", "for: 60s").replace("[1d]", "[1440s]").replace("> 900", "> 15").replace("> 600", "> 10")
        (folder / "rules.yaml").write_text(rules)
        jobs = [
            {
                "job_name": name,
                "metrics_path": "/~/metrics",
                "authorization": {"credentials": gateway.token},
                "static_configs": [{"targets": [gateway.url.removeprefix("http://")]}],
            }
            for name, gateway in gateways.items()
        ]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": jobs,
        }
        # JSON is YAML.
        (folder / "prometheus.yaml").write_text(json.dumps(settings))
        self.url = f"http://127.0.0.1:{free_port()}"
        options = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
        options.append(f"--web.listen-address={self.url.removeprefix('http://')}")
        self.log = open(folder / "prometheus.log", "w")
        self.process = subprocess.Popen(["prometheus", *options], stdout=self.log, stderr=self.log)

    def firing(self):
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/alerts", timeout=5) as answer:
                alerts = json.load(answer)["data"]["alerts"]
        except OSError:
            return {}
        return {a["labels"]["alertname"]: a["annotations"]["summary"] for a in alerts if a["state"] == "firing"}


class Drill:
    def __init__(self, pictures):
        for need in ("prometheus", *(["chromium", "chromedriver"] if pictures else [])):
            if not shutil.which(need):
                sys.exit(f"{need} is missing: install it (Debian: prometheus, chromium, chromium-driver)")
        if not PROGRAM.exists():
            sys.exit("build the program first: cargo build -p integration-client-cli")
        self.pictures = pictures
        self.folder = Path(tempfile.mkdtemp(prefix="ic-drill-"))
        self.vendor = Vendor()
        self.vendor.up()
        vendors = self.folder / "vendors.toml"
        vendors.write_text(
            f'[vendors.shop]\nbase_url = "http://127.0.0.1:{self.vendor.port}"\nauth = {{ scheme = "bearer" }}\n'
            'connect_timeout = "500ms"\n[vendors.shop.retry]\nfirst_wait = "200ms"\nmax_age = "20s"\n'
            '[vendors.shop.idempotency]\nheader = "idempotency-key"\n'
            '[[vendors.shop.limits]]\nname = "second"\nlimit = 200\nwindow = "1s"\n'
            + "".join(f'[[tenants]]\nid = "{t}"\nvendor = "shop"\ncredential = "env:DRILL_{t.upper()}"\n' for t in TENANTS)
        )
        self.worker = Gateway(self.folder, vendors, "--console-operate")
        self.front = Gateway(self.folder, vendors, "--no-work")
        self.prometheus = Prometheus(self.folder, {"worker": self.worker, "front": self.front})
        self.sending, self.failed = True, []
        threading.Thread(target=self.load, daemon=True).start()

    def load(self):
        """Work of every day: a request by each process and tenant, and one that is left in the store."""
        number = 0
        while self.sending:
            number += 1
            for tenant in TENANTS:
                threading.Thread(target=self.worker.ask, args=(f"/{tenant}/shop/orders/{number}",), daemon=True).start()
                self.front.ask(f"/{tenant}/shop/orders/{number}", "POST", integration_async="true")
            time.sleep(0.3)

    def until(self, what, holds, seconds=90):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            said = holds()
            if said:
                print(f"  {what}: {said}")
                return
            time.sleep(0.5)
        self.failed.append(what)
        print(f"  {what}: NOT SAID within {seconds} s")

    def alert(self, name, fires=True):
        if fires:
            self.until(f"alert {name}", lambda: self.prometheus.firing().get(name))
        else:
            self.until(f"alert {name} is over", lambda: name not in self.prometheus.firing() and "yes")

    def picture(self, name, place="#/lanes"):
        if self.pictures:
            subprocess.run([sys.executable, ROOT / "scripts/drill_picture.py", self.worker.url, self.worker.token, self.pictures / f"{name}.png", place], check=True)

    def worst(self):
        lanes = self.worker.console("lanes?sort=worst").get("lanes", [])
        return [(lane["tenant"], lane["state"], lane.get("unreachable") or lane.get("reason")) for lane in lanes]

    def run(self):
        print("everything works")
        self.until("console", lambda: all(state in ("idle", "sending", "waiting") for _, state, _ in self.worst()) and self.worst())
        self.until("no alert", lambda: not self.prometheus.firing() and "none")

        print("the vendor goes down")
        self.vendor.down()
        self.until("metric hosts_open", lambda: self.worker.metric("integration_client_hosts_open"))
        self.until("console", lambda: [lane for lane in self.worst() if lane[1] == "unreachable"] or None)
        self.alert("VendorUnreachable")
        self.alert("OldestJobWaits")
        self.picture("vendor-down")

        print("the vendor comes back")
        self.vendor.up()
        self.until("metric hosts_open", lambda: self.worker.metric("integration_client_hosts_open") == 0 and "0")
        self.until("console", lambda: not any(state == "unreachable" for _, state, _ in self.worst()) and "no lane waits for it")
        self.alert("VendorUnreachable", fires=False)
        self.alert("OldestJobWaits", fires=False)

        print("the key of acme is revoked")
        self.vendor.revoked.add("key-acme")
        letters = lambda: self.worker.console("letters?tenant=acme&reason=rejected")
        self.until("console", lambda: letters().get("total") and f"{letters()['total']} dead letters of acme: rejected, last status {letters()['letters'][0]['last']['status']}")
        self.until("others go on", lambda: self.worker.ask("/bolt/shop/x")[0] == 200 and "bolt: 200")
        self.alert("RequestsGivenUp")
        self.picture("key-revoked", "#/letters")
        self.vendor.revoked.clear()

        print("the disk is full")
        # What is written beyond this fails, as it does on a full disk.
        self.limit_files(0)
        self.until("metric store_writable", lambda: self.worker.metric("integration_client_store_writable") == 0 and "0")
        self.until("console", lambda: (self.worker.console("overview").get("store_problem")))
        self.alert("StoreNotWritable")
        self.picture("disk-full", "#/queues")
        self.limit_files(None)
        self.until("metric store_writable", lambda: self.worker.metric("integration_client_store_writable") == 1 and "1")
        self.alert("StoreNotWritable", fires=False)

        print("the worker dies")
        self.worker.kill()
        self.alert("WorkerMissing")
        self.until("metric outbox_waiting of the other process", lambda: self.front.metric("integration_client_outbox_waiting"))

        self.sending = False
        self.front.process.send_signal(signal.SIGTERM)
        self.prometheus.process.terminate()
        if self.failed:
            sys.exit(f"drill: not said: {', '.join(self.failed)}; see {self.folder}")
        shutil.rmtree(self.folder, ignore_errors=True)
        print("drill: steps=5 said=all")

    def limit_files(self, size):
        size = "unlimited" if size is None else size
        for gateway in (self.worker, self.front):
            subprocess.run(["prlimit", "--pid", str(gateway.process.pid), f"--fsize={size}:unlimited"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    drill = Drill(arguments.pictures)
    try:
        drill.run()
    finally:
        for process in (drill.worker.process, drill.front.process, drill.prometheus.process):
            process.kill()


main()
