#!/usr/bin/env python3
"""Measures `integration-client run` of many lines on SQLite: lines a second, memory, and bytes written.

    scripts/run_speed.py [LINES] [--tenants N] [--no-build]      a million lines of one tenant unless given

The vendor is a process of its own on loopback. It allows more than can be sent and answers at once, so the run is bound by the
machine. The last line sums up:

    run: lines= per_s= rss_mb_first= rss_mb_last= bytes_per_job= cpu_us_per_job= vendor_us_per_job= bare=

`rss_mb_first`: the most memory until a tenth of the results is written; `rss_mb_last`: until the end. `bytes_per_job`: what the
process wrote to the disk, results included (the kernel's count of pages), for each line. `cpu_us_per_job` and
`vendor_us_per_job`: processor time of the program and of the vendor; the processors divided by their sum are what the run cannot
exceed. `bare`: rows a second that SQLite
alone takes through the same tables in the same run: accepted, claimed, started and ended, with a synced commit each for 256 rows.
Not part of the checks: figures depend on what else runs.
"""

import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORT = 18437
# Rows of one transaction of the bare loop.
GROUP = 256
BARE_ROWS = 100_000

VENDORS = f"""
[vendors.v]
base_url = "http://127.0.0.1:{PORT}"
auth = {{ scheme = "bearer" }}
max_transit = "1s"
connect_timeout = "1s"
[[vendors.v.limits]]
name = "second"
scope = "account"
algorithm = "fixed_window"
limit = 100000
window = "1s"
safety = 1.0
[vendors.v.idempotency]
header = "idempotency-key"
"""


def build():
    packages = ["-p", "integration-client-cli", "-p", "integration-client"]
    targets = ["--bin", "integration-client", "--example", "fake_vendor"]
    command = ["cargo", "build", "--quiet", "--locked", "--release", "--all-features", *packages, *targets]
    subprocess.run(command, cwd=ROOT, check=True)


def write_input(folder, lines, tenants):
    text = VENDORS
    for n in range(tenants):
        text += f'[[tenants]]\nid = "t{n}"\nvendor = "v"\ncredential = "env:IC_RUN_KEY"\n'
    (folder / "vendors.toml").write_text(text)
    with open(folder / "jobs.jsonl", "w") as out:
        for n in range(1, lines + 1):
            out.write(
                f'{{"tenant":"t{n % tenants}","vendor":"v","priority":"low","method":"POST",'
                f'"path":"/jobs/{n}","body":{{"record":{n}}}}}\n'
            )


def most_memory(process):
    with open(f"/proc/{process}/status") as status:
        return next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")), 0.0)


def sample(process, results, samples, ended):
    """Notes, several times a second, how long the results are and what the most memory was until then."""
    while not ended.wait(0.2):
        try:
            samples.append((results.stat().st_size, most_memory(process)))
        except OSError:
            pass


def measure(folder, program, lines):
    results = folder / "results.jsonl"
    command = [program, "run", "jobs.jsonl", "--vendors", "vendors.toml", "--quiet", "--out", results]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    samples, ended = [], threading.Event()
    sampler = threading.Thread(target=sample, args=(process.pid, results, samples, ended))
    sampler.start()
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    ended.set()
    sampler.join()
    assert status == 0, said
    print(said.strip().splitlines()[-1])
    with open(results) as text:
        written = sum(1 for _ in text)
    assert written == lines, f"{written} results of {lines} lines"
    tenth = results.stat().st_size / 10
    first = max((memory for size, memory in samples if size <= tenth), default=0.0)
    return {
        "per_s": f"{lines / took:.0f}",
        "rss_mb_first": f"{first:.0f}",
        "rss_mb_last": f"{usage.ru_maxrss / 1024:.0f}",
        # Blocks of 512 bytes, whatever the file system.
        "bytes_per_job": f"{usage.ru_oublock * 512 / lines:.0f}",
        "cpu_us_per_job": f"{(usage.ru_utime + usage.ru_stime) * 1e6 / lines:.0f}",
    }


def bare(folder, store):
    """The life of rows in the tables of `store`, which a run has left, by SQLite alone."""
    database = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    for pragma in ["journal_mode = WAL", "synchronous = FULL", "cache_size = -8192", "wal_autocheckpoint = 4000"]:
        database.execute(f"PRAGMA {pragma}")
    theirs = sqlite3.connect(store)
    for (sql,) in theirs.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"):
        database.execute(sql)
    theirs.close()
    request, owner = b"x" * 200, b"o" * 16
    insert = "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, request) VALUES (?, 't0', 'v', 2, ?, ?, ?)"
    steps = [
        "UPDATE ic_job SET state = 1, claims = 1, fence = 1, owner = ?, lease_until = 1 WHERE seq IN (SELECT seq FROM ic_job "
        "WHERE state = 0 AND vendor = 'v' AND tenant = 't0' AND tier = 2 AND run_at <= ? ORDER BY run_at, seq LIMIT ?)",
        "UPDATE ic_job SET started = 1, begun = 1 WHERE owner = ? AND state = 1 AND run_at <= ? AND ? > 0",
        "INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at) "
        "SELECT id, tenant, vendor, 0, 200, 1, 1 FROM ic_job WHERE owner = ? AND state = 1 AND run_at <= ? AND ? > 0",
        "DELETE FROM ic_job WHERE owner = ? AND state = 1 AND run_at <= ? AND ? > 0",
    ]
    began = time.monotonic()
    for group in range(BARE_ROWS // GROUP):
        rows = [((group << 64 | n).to_bytes(16, "big"), group, group, request) for n in range(GROUP)]
        database.execute("BEGIN IMMEDIATE")
        database.executemany(insert, rows)
        database.execute("COMMIT")
        for transaction in (steps[:1], steps[1:2], steps[2:]):
            database.execute("BEGIN IMMEDIATE")
            for sql in transaction:
                database.execute(sql, (owner, group, GROUP))
            database.execute("COMMIT")
    took = time.monotonic() - began
    done = database.execute("SELECT count(*) FROM ic_done").fetchone()[0]
    assert done == BARE_ROWS // GROUP * GROUP, done
    return {"bare": f"{done / took:.0f}"}


def main(arguments):
    tenants = int(arguments[arguments.index("--tenants") + 1]) if "--tenants" in arguments else 1
    lines = int(arguments[0]) if arguments and not arguments[0].startswith("--") else 1_000_000
    if "--no-build" not in arguments:
        build()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release"
    os.environ["IC_RUN_KEY"] = "key"
    # Not the folder for temporary files, which may be memory: a sync must reach a disk.
    with tempfile.TemporaryDirectory(dir=target) as folder:
        folder = pathlib.Path(folder)
        write_input(folder, lines, tenants)
        command = [target / "examples/fake_vendor", "--port", str(PORT), "--silent", "--log-cap", "0"]
        command += ["--limit", "100000", "--window-ms", "1000", "--algorithm", "fixed_window"]
        # The vendor ends when its standard input closes.
        vendor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if not any("listening" in line for line in vendor.stdout):
                raise SystemExit("the vendor did not start; is its port taken?")
            figures = {"lines": lines} | measure(folder, target / "integration-client", lines)
        finally:
            vendor.stdin.close()
            _, _, usage = os.wait4(vendor.pid, 0)
        figures["vendor_us_per_job"] = f"{(usage.ru_utime + usage.ru_stime) * 1e6 / lines:.0f}"
        figures |= bare(folder, folder / "jobs.jsonl.sqlite")
    print("run: " + " ".join(f"{name}={value}" for name, value in figures.items()))


main(sys.argv[1:])
