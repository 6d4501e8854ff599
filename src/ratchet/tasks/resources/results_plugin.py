"""A pytest plugin that reports each test as it ends, over a descriptor that it inherits (see supervisor.py).

Runs inside environments: Python 3.6 and later, pytest 3.6 and later, nothing but the standard library. The package gets
a name of its own for each run. Whatever a test may patch while it runs is taken here at the start.

What it is told (JSON, see suite.py): the workspace, a nonce, and perhaps the tests to select, the canaries to mix in, a
folder from which `coverage` can be imported. What it reports, one JSON object each, by "t":
    start, session, end     versions; the root folder, once there is a session; how it ended and how much was reported
    collected               ids of tests, in the order in which they will run
    collection              a file that could not be collected, or was skipped as a whole
    result                  one phase of one test
    replaced                names of functions that are others than at the start
    hooks                   who beside pytest has a say in how tests run, of the workspace
    lines                   which tests ran which lines of a file (see tracing.py)
Ids are pytest's node ids, with the path relative to the workspace wherever pytest's root folder is.
"""

import json
import os
import platform
import random
import sys

import pytest

from . import integrity, tracing

MAX_MESSAGE_CHARS = 4000
IDS_IN_A_MESSAGE = 200

# What would make a run depend on anything but the code, end it early, or share it out to other processes.
SETTLED = {
    "maxfail": 0,
    "numprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "xmlpath": None,
    "continue_on_collection_errors": True,
    "randomly_reorganize": False,
    "randomly_seed": 1,
}
SHUFFLERS = ("randomly", "random_order", "random-order", "pytest_randomly", "reverse")
WATCHED_HOOKS = (
    "pytest_pyfunc_call",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
    "pytest_runtest_logreport",
)


class Channel:
    """Where reports go. Only the process that opened it can use it: the supervisor refuses its children."""

    def __init__(self, descriptor, nonce):
        self.descriptor, self.nonce, self.results = descriptor, nonce.encode(), 0
        self.write, self.getpid, self.dumps = os.write, os.getpid, json.JSONEncoder().encode
        self.owner = os.getpid()
        os.set_inheritable(descriptor, False)

    def send(self, kind, **values):
        if self.getpid() == self.owner:
            values["t"] = kind
            self.write(self.descriptor, self.nonce + self.dumps(values).encode())


def open_channel():
    descriptor, told = map(int, os.environ.pop("RATCHET_RESULTS").split(":"))
    with os.fdopen(told, encoding="utf-8") as file:
        told = json.load(file)
    own_folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [path for path in sys.path if path != own_folder]
    # Programs that the tests start are not to have this plugin.
    for name, part, separator in (("PYTHONPATH", own_folder, ":"), ("PYTEST_ADDOPTS", "-p " + __name__, " ")):
        rest = os.environ.get(name, "").replace(part, "", 1).strip(separator)
        if rest:
            os.environ[name] = rest
        else:
            os.environ.pop(name, None)
    return Channel(descriptor, told.pop("nonce")), told


channel, told = open_channel()
workspace = told["workspace"]
originals = integrity.Originals(sys.modules[__name__], integrity, tracing)
lines = tracing.Lines(told["coverage"], workspace) if told.get("coverage") else None
ids = {}  # by pytest's node id
hooks_at_start = {}
channel.send("start", python=platform.python_version(), pytest=pytest.__version__)


# --------------------------------------------------------------------------- how the run is set up


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Whatever installed plugins patch is patched by now, and no code of the project has run.
    originals.accept(outside=workspace)
    known = early_config.known_args_namespace
    for name, value in (("cov_source", None), ("no_cov", True)):
        if hasattr(known, name):
            setattr(known, name, value)
    yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config):
    for name, value in SETTLED.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    tests, canaries = told.get("tests"), told.get("canaries")
    if tests is not None:
        files = sorted({test.partition("::")[0] for test in tests})
        paths = [os.path.join(workspace, path) for path in files]
        config.args = [path for path in paths if os.path.exists(path)]
        if hasattr(config.option, "pyargs"):
            config.option.pyargs = False
    if canaries:
        config.args.append(os.path.join(workspace, canaries["path"]))
        config.getini("python_functions").extend(name for name in canaries["names"] if "::" not in name)
    yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_sessionstart(session):
    yield
    channel.send("session", root=root_folder(session.config))


def root_folder(config):
    return str(getattr(config, "rootpath", None) or config.rootdir)


# --------------------------------------------------------------------------- which tests, in which order


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    canaries = take_canaries(items)
    as_collected = list(items)
    yield
    if any(config.pluginmanager.hasplugin(name) for name in SHUFFLERS):
        places = {item: place for place, item in enumerate(as_collected)}
        items.sort(key=lambda item: places.get(item, len(places)))
    for item in items + canaries:
        ids[item.nodeid] = test_id(item)
    if told.get("tests") is not None:
        wanted = set(told["tests"])
        left_out = [item for item in items if ids[item.nodeid] not in wanted]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if ids[item.nodeid] in wanted]
    if canaries:
        mix(items, canaries, random.Random(told["canaries"]["seed"]))
    told.clear()
    ordered = [ids[item.nodeid] for item in items]
    for first in range(0, len(ordered), IDS_IN_A_MESSAGE):
        channel.send("collected", ids=ordered[first : first + IDS_IN_A_MESSAGE])
    if lines is not None:
        lines.number({item.nodeid: place for place, item in enumerate(items)})
    hooks_at_start.update(implementers(config))


def take_canaries(items):
    """Out of the list, so that nothing in the project sorts or deselects them."""
    wanted = told.get("canaries")
    if not wanted:
        return []
    found = [item for item in items if test_id(item).partition("::")[0] == wanted["path"]]
    items[:] = [item for item in items if item not in found]
    return [item for item in found if test_id(item).partition("::")[2] in wanted["names"]]


def mix(items, canaries, chance):
    """Put each canary at a place of its own, but not between tests that share a fixture which would be torn down."""
    places = [place for place in range(len(items) + 1) if can_part(items[place - 1 : place], items[place : place + 1])]
    chosen = sorted(((chance.choice(places), chance.random(), canary) for canary in canaries), reverse=True, key=by_place)
    for place, _, canary in chosen:
        items.insert(place, canary)


def by_place(entry):
    return entry[:2]


def can_part(before, after):
    if not before or not after:
        return True
    return not (wide_fixtures(before[0]) & wide_fixtures(after[0]))


def wide_fixtures(item):
    """The fixtures of a test that serve a whole class, module or package."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    fixtures = [fixture for found in known.values() for fixture in found]
    return {id(fixture) for fixture in fixtures if fixture.scope in ("class", "module", "package")}


def test_id(item):
    path = str(getattr(item, "path", None) or item.fspath)
    inside = item.nodeid.partition("::")
    return os.path.relpath(path, workspace) + inside[1] + inside[2]


def path_of(node_id, root):
    return os.path.relpath(os.path.join(root, node_id.partition("::")[0]), workspace)


# --------------------------------------------------------------------------- what came of them


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):
    outcome = yield
    report = outcome.get_result()
    if report.outcome != "passed":
        path = path_of(report.nodeid, root_folder(collector.config))
        channel.send("collection", path=path, outcome=report.outcome, message=message_of(report))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    if lines is not None:
        lines.enter(item.nodeid)
    yield
    if lines is not None:
        lines.leave()
    look_for_replaced()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_logreport(report):
    channel.results += 1
    channel.send(
        "result",
        id=ids.get(report.nodeid, report.nodeid),
        when=str(report.when),
        outcome=report.outcome,
        seconds=float(getattr(report, "duration", 0.0)),
        message=message_of(report) if report.outcome != "passed" else "",
        part=type(report).__name__.lower() == "subtestreport",
    )
    yield


def message_of(report):
    """Why it failed or was skipped: the error first, then the traceback."""
    if getattr(report, "wasxfail", None):
        return "expected to fail: " + str(report.wasxfail)[:MAX_MESSAGE_CHARS]
    found = report.longrepr
    if isinstance(found, tuple) and len(found) == 3:
        return str(found[2])[:MAX_MESSAGE_CHARS]
    crash = getattr(getattr(found, "reprcrash", None), "message", "")
    text = "\n\n".join(part for part in (str(crash or ""), str(found or "")) if part)
    half = MAX_MESSAGE_CHARS // 2
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: half - 2] + "\n…\n" + text[1 - half :]


def look_for_replaced():
    names = originals.replaced()
    if names:
        channel.send("replaced", names=names[:20])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    yield
    look_for_replaced()
    hooks = implementers(session.config)
    channel.send("hooks", now=sorted(hooks), added=sorted(set(hooks) - set(hooks_at_start)))
    if lines is not None:
        lines.dump(channel.send)
    channel.send("end", status=int(exitstatus), results=channel.results)


def implementers(config):
    """The functions, beside pytest's and those of what is installed, that take part in running tests."""
    found = {}
    for hook in WATCHED_HOOKS:
        caller = getattr(config.hook, hook, None)
        for implementation in caller.get_hookimpls() if hasattr(caller, "get_hookimpls") else ():
            code = getattr(implementation.function, "__code__", None)
            path = getattr(code, "co_filename", "?")
            if code is None or path.startswith(workspace + os.sep):
                found["%s in %s" % (hook, os.path.relpath(path, workspace) if code else "?")] = implementation
    return found
