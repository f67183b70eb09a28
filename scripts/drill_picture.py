#!/usr/bin/env python3
"""A picture of the console: drill_picture.py GATEWAY_URL TOKEN FILE [PLACE]. Needs chromium and chromium-driver."""

import base64
import json
import socket
import subprocess
import sys
import time
import urllib.request


def main():
    url, token, file = sys.argv[1:4]
    place = sys.argv[4] if len(sys.argv) > 4 else "#/lanes"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def call(method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["value"]

    try:
        for _ in range(100):
            try:
                call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        arguments = ["--headless=new", "--no-sandbox", "--window-size=1100,700"]
        options = {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}
        session = f"/session/{call('POST', '/session', {'capabilities': options})['sessionId']}"
        script = lambda text, *args: call("POST", f"{session}/execute/sync", {"script": text, "args": list(args)})
        call("POST", f"{session}/url", {"url": f"{url}/~/console/{place}"})
        time.sleep(1)
        script(
            "const token = document.querySelector('#token'); token.value = arguments[0];"
            "token.form.requestSubmit();",
            token,
        )
        time.sleep(2)
        script("location.hash = arguments[0]", place)
        time.sleep(2)
        with open(file, "wb") as picture:
            picture.write(base64.b64decode(call("GET", f"{session}/screenshot")))
        call("DELETE", session)
    finally:
        driver.terminate()


main()
