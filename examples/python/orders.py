"""An application in Python that has requests sent by what it commits, and nothing else.

    python3 orders.py URL place ORDER QUANTITY   places an order, and with it the request to the vendor
    python3 orders.py URL fail ORDER QUANTITY    the same, but something goes wrong before the commit
    python3 orders.py URL answers                takes the replies, and shows all orders

URL is that of the store: `sqlite:PATH`, or `postgres://…`, which needs the package `psycopg`. The tables ic_intake and ic_reply are
there once a process of integration-client has opened the store; app_order is the application's own.
"""

import json
import sys

TENANT, VENDOR = "acme", "orders"


def connect(url):
    """A connection outside of a transaction, and the mark of a parameter."""
    if url.startswith("postgres"):
        import psycopg

        return psycopg.connect(url), "%s"
    import sqlite3

    # Others write to the file too: wait for them.
    return sqlite3.connect(url.removeprefix("sqlite:"), timeout=10), "?"


def place(db, mark, order, quantity):
    """The order and the request are there together, or neither is."""
    request = {
        "tenant": TENANT,
        "vendor": VENDOR,
        "method": "POST",
        "path": "/orders.json",
        "body": {"order": order, "quantity": quantity},
        "metadata": {"order": order},
        "reply": True,
    }
    db.execute(f"INSERT INTO app_order (id, quantity, state) VALUES ({mark}, {mark}, 'placed')", (order, quantity))
    # The order's own id: an application that places it again by mistake, within a week, makes no second request.
    db.execute(f"INSERT INTO ic_intake (id, request) VALUES ({mark}, {mark})", (f"order-{order}", json.dumps(request)))


def answers(db, mark):
    """What became of the requests goes into the orders in the transaction that deletes the replies: once, whatever is killed."""
    for seq, text in db.execute("SELECT seq, reply FROM ic_reply ORDER BY seq LIMIT 100").fetchall():
        # Another process may have taken it meanwhile, and a later reply to the same order.
        if db.execute(f"DELETE FROM ic_reply WHERE seq = {mark}", (seq,)).rowcount == 0:
            continue
        reply = json.loads(text)
        order = (reply["metadata"] or {}).get("order")
        state = f"{reply['outcome']} {reply['status']}"
        db.execute(f"UPDATE app_order SET state = {mark} WHERE id = {mark}", (state, order))


def main(url, command, *rest):
    db, mark = connect(url)
    db.execute("CREATE TABLE IF NOT EXISTS app_order (id TEXT PRIMARY KEY, quantity BIGINT NOT NULL, state TEXT NOT NULL)")
    db.commit()
    try:
        if command == "answers":
            answers(db, mark)
        else:
            place(db, mark, rest[0], int(rest[1]))
            if command == "fail":
                raise SystemExit("something went wrong")
        db.commit()
    except BaseException:
        db.rollback()
        raise
    for order, quantity, state in db.execute("SELECT id, quantity, state FROM app_order ORDER BY id"):
        print(order, quantity, state)


main(*sys.argv[1:])
