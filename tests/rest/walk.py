"""Has schemathesis walk what is there: every other request that it makes up gets the names and numbers
of hosts, boxes, slots, allocations and so on that the manager shows at that moment. The others stay as
they were made up. What a request then is, valid or not, schemathesis judges anew."""

import itertools
import json
import os
import time
import urllib.request

import schemathesis

SERVER = os.environ["DXPU_MANAGER"]

# How long what the manager showed is taken for what is there, in seconds.
FRESH = 0.5

# No request is to wait for longer, in milliseconds: there are many.
LONGEST = 200

LISTS = ["nodes", "boxes", "hosts", "allocations", "bindings", "operations", "slots", "erasures", "recordings"]

turns = itertools.count()
shown = {}
looked = -FRESH


def items(kind):
    """What the manager lists, at most FRESH old."""
    global looked
    if time.monotonic() - looked >= FRESH:
        for name in LISTS:
            with urllib.request.urlopen(f"{SERVER}/v1/{name}?limit=1000") as answer:
                shown[name] = json.load(answer)["items"]
        looked = time.monotonic()
    return shown[kind]


def one(kind, field, turn):
    """One of those, another in each turn; nothing if there is none."""
    there = items(kind)
    return there[turn % len(there)][field] if there else None


def put(into, key, value):
    if value is not None and isinstance(into, dict) and key in into:
        into[key] = value


def real_path(path, into, turn):
    parts = path.split("/")
    kind = parts[2] if len(parts) > 2 else ""
    if kind in ("nodes", "boxes", "hosts"):
        put(into, "name", one(kind, "name", turn))
    elif kind in ("allocations", "bindings", "operations", "erasures", "recordings"):
        put(into, "id", one(kind, "id", turn))
    put(into, "slot", 1 + turn % 4)


def real_body(path, body, turn):
    slot = one("slots", "slot", turn)
    put(body, "host", one("hosts", "name", turn))
    put(body, "box", one("boxes", "name", turn))
    places = [slot, one("nodes", "name", turn), one("allocations", "id", turn)]
    put(body, "place", places[turn % 2])
    put(body, "what", places[turn % 3])
    put(body, "binding", one("bindings", "id", turn))
    if path == "/v1/allocations" and turn % 4 == 0 and isinstance(body, dict):
        # Wishes that are made up fit nothing.
        for key in set(body) - {"host", "reason", "tenant"}:
            del body[key]


@schemathesis.hook
def before_call(context, case, kwargs):
    turn, real = divmod(next(turns), 2)
    if isinstance(case.query, dict):
        for key in ("wait_ms", "window_ms"):
            value = case.query.get(key)
            if str(value).isdigit() and LONGEST < int(value) <= 60_000:
                case.query[key] = LONGEST
    if not real:
        return
    if turn % 2 == 0 and case.headers:
        # A tag that is made up is never the right one.
        case.headers.pop("If-Match", None)
    path = case.operation.path
    if isinstance(case.path_parameters, dict):
        real_path(path, case.path_parameters, turn)
    real_body(path, case.body, turn)
