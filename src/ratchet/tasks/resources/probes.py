"""Call functions with plain data, and print what they give in a form that can be compared.

    python probes.py REQUEST

It is copied into environments and runs there with the project's own Python (3.7 or later), so it imports nothing but
the standard library. REQUEST is a JSON file:

    {"nonce": "...", "timeout_s": 2.0, "calls": [{"paths", "module", "name", "method", "init", "args", "kwargs"}, ...]}

For each call it prints a line: the nonce, the number of the call, and in JSON [outcome, seconds]. Each runs in a
process of its own, so that one which crashes, hangs or eats memory costs no other.

The code under test runs in these processes, and can print such lines itself: the nonce keeps apart what it prints by
accident, not what it forges. But it gains nothing by that, since what is expected is not here: to print the right
outcome it has to know it.
"""

import ast
import hashlib
import importlib
import json
import os
import re
import resource
import signal
import sys
import time
import types

ITEMS = 50
DEPTH = 4
CHARACTERS = 1000
MEMORY_BYTES = 2 << 30
FILE_BYTES = 16 << 20
IMPORT_S = 20.0


def canonical(value, depth=0):
    """A text that is the same for equal values: by type, sets and dicts sorted, iterators used up to `ITEMS`, no
    addresses. Of objects without a repr of their own it shows the public attributes."""
    if depth > DEPTH:
        return "..."
    kind = type(value)
    if kind is int:
        return hex(value) if abs(value) > 10**1000 else repr(value)
    if value is None or kind in (bool, float, complex, str, bytes, bytearray, range):
        return ascii(value)
    if isinstance(value, type):
        if "<" in value.__qualname__:
            raise Unstable
        return "<class %s>" % value.__qualname__
    if isinstance(value, BaseException):
        return "<exception %s%s>" % (kind.__qualname__, canonical(value.args, depth + 1))
    for base in (str, bytes, int, float):
        if isinstance(value, base):
            return "%s(%s)" % (
                kind.__qualname__,
                canonical(base.__str__(value) if base is str else base(value), depth + 1),
            )
    if isinstance(value, (list, tuple)):
        return named(kind, (list, tuple), listed(value, depth), "[]" if isinstance(value, list) else "()")
    if isinstance(value, (set, frozenset)):
        return named(kind, (set,), sorted(canonical(item, depth + 1) for item in value), "{}")
    if isinstance(value, dict):
        return named(kind, (dict,), sorted(pairs(value, depth)), "{}")
    if isinstance(value, (types.CoroutineType, types.AsyncGeneratorType)):
        raise Unstable
    if hasattr(kind, "__next__"):
        return "<iterator %s>" % ", ".join(listed(value, depth))
    if isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        return "<view %s>" % ", ".join(listed(value, depth))
    if callable(value) and hasattr(value, "__qualname__"):
        if "<" in value.__qualname__:  # what is inside a function may be named as one likes
            raise Unstable
        return "<function %s>" % value.__qualname__
    return instance(value, depth)


class Unstable(Exception):
    """Nothing that could be compared."""


def listed(values, depth):
    shown = []
    for value in values:
        if len(shown) == ITEMS:
            shown.append("...")
            break
        shown.append(canonical(value, depth + 1))
    return shown


def pairs(value, depth):
    return ["%s: %s" % (canonical(k, depth + 1), canonical(v, depth + 1)) for k, v in list(value.items())[: 4 * ITEMS]]


def named(kind, plain, items, brackets):
    text = brackets[0] + ", ".join(items) + brackets[1]
    return text if kind in plain else kind.__qualname__ + text


def instance(value, depth):
    kind = type(value)
    if kind.__repr__ is not object.__repr__:
        return "<%s %s>" % (kind.__qualname__, ascii(repr(value)))
    return "<%s %s>" % (kind.__qualname__, public(value, depth))


def public(value, depth):
    attributes = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_")}
    return "{%s}" % ", ".join(sorted(pairs(attributes, depth)))


def outcome(call):
    """What a call gave: the value, or the type of what it raised; and what it did to its arguments, or, where it
    returned nothing, to its object."""
    try:
        target = importlib.import_module(call["module"])
        for part in call["name"].split("."):
            target = getattr(target, part)
        args, kwargs = ast.literal_eval(call["args"]), ast.literal_eval(call["kwargs"])
        made = None
        if call["init"] is not None:
            made_args, made_kwargs = ast.literal_eval(call["init"])
            made = target = target(*made_args, **made_kwargs)
        if call["method"]:
            target = getattr(target, call["method"])
    except Exception as error:
        return "cannot be called: %s" % type(error).__name__
    before = canonical([args, kwargs])
    try:
        # An attribute that is no method (a property) is its own outcome.
        given = target(*args, **kwargs) if callable(target) else target
        text = "returned %s" % canonical(given)
    except Unstable:
        raise
    except BaseException as error:
        return "raised %s" % type(error).__qualname__
    after = canonical([args, kwargs])
    if after != before:
        text += " and left %s" % after
    if given is None and made is not None:
        text += " and made it %s" % public(made, 0)
    return re.sub("0x[0-9a-fA-F]{6,}", "0x", text)


def bounded(text):
    if len(text) <= CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return "%s... (%d characters, SHA-256 %s)" % (text[: CHARACTERS - 200], len(text), digest)


def call_one(number, call, request, out):
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(request["timeout_s"]) + 2),
    ):
        resource.setrlimit(limit, (most, most))
    started = time.perf_counter()
    try:
        text = bounded(outcome(call))
    except BaseException:  # nothing that can be compared came of it
        text = None
    seconds = time.perf_counter() - started
    line = "\n%s %d %s\n" % (request["nonce"], number, json.dumps([text, seconds]))
    os.write(out, line.encode("ascii"))


def wait(pid, timeout_s):
    deadline = time.monotonic() + timeout_s
    pause = 0.0005
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return stop_group(pid)
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
    stop_group(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def stop_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def main(place):
    with open(place) as file:
        request = json.load(file)
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    calls = request["calls"]
    paths = dict.fromkeys(path for call in calls for path in call["paths"])
    sys.path[:] = list(paths) + [path for path in sys.path[1:] if path not in paths]
    sys.argv[:] = ["probes"]
    by_module = {}
    for number, call in enumerate(calls):
        by_module.setdefault(call["module"], []).append((number, call))
    for module, numbered in by_module.items():
        # The module is imported once, by a process whose end costs the calls of that module only.
        fork(lambda: call_all(module, numbered, request, out), IMPORT_S + request["timeout_s"] * len(numbered))


def call_all(module, numbered, request, out):
    try:
        importlib.import_module(module)
    except Exception:  # each call will say so
        pass
    for number, call in numbered:
        fork(lambda: call_one(number, call, request, out), request["timeout_s"])


def fork(work, timeout_s):
    """Do `work` in a process of its own, which ends after `timeout_s` at the latest."""
    pid = os.fork()
    if pid:
        return wait(pid, timeout_s)
    try:
        os.setpgid(0, 0)
        work()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
