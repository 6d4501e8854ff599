"""A pytest plugin that notes calls of some functions whose arguments are plain data.

It is copied into environments and runs there with the project's own Python (3.7 or later), so it imports nothing but
the standard library. The variable RATCHET_RECORD names a JSON file:

    {"root": "/workspace", "targets": [["pkg/a.py", 10, 20], ...], "out": "/tmp/calls.json"}

A call of a function of the project below `root` (tests excluded) is noted when, while it ran, some code of the
`targets` (lines of files) was called: the function itself, or something that it led to. `out` gets

    {"paths": [...], "calls": [{"module", "name", "method", "init", "args", "kwargs", "distance"}, ...]}

where `args` and `kwargs` are Python literals. With `method`, `name` is a class, and `init` what an object of it was
made with ("[args, kwargs]"), or null where the method is the class's. `distance` is how many frames lie between.
"""

import json
import os
import re
import sys

import pytest

CALLS_OF_ONE = 30
SNAPSHOTS_OF_ONE = 1000
CALLS = 150
OBJECTS = 2000
FRAMES = 60
DEPTH = 6
NODES = 200
CHARACTERS = 1000
LARGEST_INT = 10**18
NOT_THE_PROJECT = re.compile(
    r"(^|/)(tests?|testing|conftest\.py|site-packages|test_[^/]*|[^/]*_tests?\.py)($|/)", re.IGNORECASE
)
ASYNC = 0x80 | 0x200  # inspect.CO_COROUTINE, CO_ASYNC_GENERATOR


class NotPlain(Exception):
    pass


def literal(value):
    """The Python literal of plain data; sets in the order of their elements' literals."""
    left = [NODES]

    def write(value, depth):
        left[0] -= 1
        kind = type(value)
        if left[0] < 0 or depth > DEPTH:
            raise NotPlain
        if value is None or kind is bool:
            return repr(value)
        if kind is int and abs(value) <= LARGEST_INT:
            return repr(value)
        if kind is float and value == value and abs(value) != float("inf"):
            return repr(value)
        if kind in (str, bytes) and len(value) <= CHARACTERS:
            return ascii(value)
        if kind is list:
            return "[%s]" % ", ".join([write(item, depth + 1) for item in value])
        if kind is tuple:
            return "(%s)" % "".join([write(item, depth + 1) + ", " for item in value]).strip() if value else "()"
        if kind is set and value:
            return "{%s}" % ", ".join(sorted(write(item, depth + 1) for item in value))
        if kind is dict:
            return "{%s}" % ", ".join(["%s: %s" % (write(k, depth + 1), write(v, depth + 1)) for k, v in value.items()])
        raise NotPlain

    return write(value, 0)


class Recorder(object):
    def __init__(self, request):
        root = request["root"]
        self.out = request["out"]
        self.root = root
        self.targets = [(os.path.join(root, path), first, last) for path, first, last in request["targets"]]
        # 2 of the targets, 1 of the project, 0 of others, -1 of others that make objects of the project.
        self.codes = {}
        self.snapshots = {}  # code: how many were made
        self.live = {}  # id of a frame: its call
        self.made = {}  # id of an object: the object, what it was made with
        self.counts = {}
        self.calls = {}
        self.busy = False
        self.written = 0

    # ------------------------------------------------------------------ listening

    def trace(self, frame, *_):
        """Of every call; the lines of a function are not looked at, which keeps this quick."""
        code = frame.f_code
        if self.busy or self.codes.get(code) == 0 or len(self.calls) >= CALLS:
            return None
        self.busy = True
        try:
            self.called(frame)
        except Exception:  # whatever the project's objects do when looked at
            pass
        finally:
            self.busy = False
        if id(frame) not in self.live:
            return None
        frame.f_trace_lines = False
        return self.trace_return

    def trace_return(self, frame, event, _):
        if event == "return":
            self.live.pop(id(frame), None)
        return self.trace_return

    def called(self, frame):
        code = frame.f_code
        rank = self.codes.get(code)
        if rank is None:
            rank = self.codes[code] = self.rank(frame)
        if code.co_name == "__init__":
            self.note_object(frame)
        if rank < 1:
            return
        made = self.snapshots.get(code, 0)
        if made < SNAPSHOTS_OF_ONE and self.counts.get(code, 0) < CALLS_OF_ONE:
            self.snapshots[code] = made + 1
            try:
                self.live[id(frame)] = code, self.describe(frame)
            except NotPlain:
                pass
        if rank == 2:
            self.keep(frame)

    def rank(self, frame):
        code = frame.f_code
        path = os.path.realpath(code.co_filename)
        if any(path == file and first <= code.co_firstlineno <= last for file, first, last in self.targets):
            return 2
        if self.is_ours(path):
            return 1
        # Generated code (of a dataclass, say) has no file, but its class has.
        made = type(next(iter(frame.f_locals.values()), None)) if code.co_name == "__init__" else None
        module = sys.modules.get(getattr(made, "__module__", ""))
        return -1 if self.is_ours(getattr(module, "__file__", None) or "") else 0

    def is_ours(self, path):
        inside = path[len(self.root) + 1 :] if path.startswith(self.root + "/") else ""
        return bool(inside) and not NOT_THE_PROJECT.search(inside)

    def keep(self, frame):
        """Keep the calls on the stack, of which the target's is the innermost."""
        for distance in range(FRAMES):
            if frame is None or len(self.calls) >= CALLS:
                return
            code, call = self.live.pop(id(frame), (None, None))
            if call is not None:
                key = json.dumps(call, sort_keys=True)
                if key not in self.calls:
                    self.counts[code] = self.counts.get(code, 0) + 1
                    self.calls[key] = dict(call, distance=distance)
            frame = frame.f_back

    # ------------------------------------------------------------------ one call

    def describe(self, frame):
        code = frame.f_code
        if code.co_flags & ASYNC or code.co_name.startswith("<"):
            raise NotPlain
        names = code.co_varnames[: code.co_argcount]
        values = frame.f_locals
        first = values[names[0]] if names else None
        module = frame.f_globals["__name__"]
        function = function_of(frame.f_globals.get(code.co_name), code)
        if function is not None:
            return self.call(module, code.co_name, "", None, function, frame, 0)
        owner = first if isinstance(first, type) else type(first)
        for known in owner.__mro__ if names else ():
            raw = known.__dict__.get(code.co_name)
            function = function_of(raw, code)
            if function is None:
                continue
            reachable(owner)
            if isinstance(raw, classmethod):
                return self.call(owner.__module__, owner.__qualname__, code.co_name, None, function, frame, 1)
            if code.co_name == "__init__":
                return self.call(owner.__module__, owner.__qualname__, "", None, function, frame, 1)
            init = self.init_of(first)
            return self.call(owner.__module__, owner.__qualname__, code.co_name, init, function, frame, 1)
        return self.static(module, code, frame)

    def static(self, module, code, frame):
        """A static method, found by its qualified name."""
        name = getattr(code, "co_qualname", "")
        found = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part, None)
        function = function_of(found, code)
        if function is None:
            raise NotPlain
        return self.call(module, name, "", None, function, frame, 0)

    def call(self, module, name, method, init, function, frame, skipped):
        if module == "__main__" or module not in sys.modules:
            raise NotPlain
        args, kwargs = arguments(function, frame, skipped)
        return {
            "module": module,
            "name": name,
            "method": method,
            "init": init,
            "args": literal(tuple(args)),
            "kwargs": literal(kwargs),
        }

    # ------------------------------------------------------------------ objects

    def note_object(self, frame):
        """What an object was made with, where that is plain."""
        code = frame.f_code
        names = code.co_varnames
        made = frame.f_locals.get(names[0]) if names else None
        function = getattr(type(made), "__init__", None)
        if getattr(function, "__code__", None) is not code or len(self.made) >= OBJECTS:
            return
        try:
            args, kwargs = arguments(function, frame, 1)
            self.made[id(made)] = (made, "[%s, %s]" % (literal(tuple(args)), literal(kwargs)))
        except NotPlain:
            pass

    def init_of(self, value):
        kind = type(value)
        if kind.__init__ is object.__init__ and kind.__new__ is object.__new__:
            return "[(), {}]"
        known, init = self.made.get(id(value), (None, ""))
        if known is not value:
            raise NotPlain
        return init

    # ------------------------------------------------------------------ pytest

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self):
        for _ in self.listening():
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self):
        for _ in self.listening():
            yield

    def listening(self):
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)
            self.live.clear()

    def pytest_runtest_logfinish(self):
        """After each test: the time for all of them may run out."""
        if len(self.calls) == self.written:
            return
        self.written = len(self.calls)
        roots = [os.path.abspath(path or ".") for path in sys.path]
        inside = [path for path in roots if (path + "/").startswith(self.root + "/")]
        with open(self.out + ".new", "w") as file:
            json.dump({"paths": list(dict.fromkeys(inside)), "calls": list(self.calls.values())}, file)
        os.rename(self.out + ".new", self.out)


def function_of(found, code):
    """The function with this code that `found` is or wraps."""
    for _ in range(10):
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        if getattr(found, "__code__", None) is code:
            return found
        found = getattr(found, "__wrapped__", None)
        if found is None:
            return None
    return None


def reachable(kind):
    found = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not kind:
        raise NotPlain


def arguments(function, frame, skipped):
    """What a call was given, without its first `skipped` arguments and without what is the default anyway."""
    code = frame.f_code
    values = frame.f_locals
    count = code.co_argcount
    names = code.co_varnames
    only = names[count : count + code.co_kwonlyargcount]
    after = count + code.co_kwonlyargcount
    rest = ()
    if code.co_flags & 0x04:  # *args
        rest = values[names[after]]
        after += 1
    more = values[names[after]] if code.co_flags & 0x08 else {}  # **kwargs
    defaults = function.__defaults__ or ()
    default_of = dict(zip(names[count - len(defaults) : count], defaults))
    args, kwargs, omitted = [], {}, False
    for position, name in enumerate(names[:count]):
        if position < skipped:
            continue
        if not rest and name in default_of and values[name] is default_of[name]:
            omitted = True
        elif not omitted:
            args.append(values[name])
        elif position < getattr(code, "co_posonlyargcount", 0):
            raise NotPlain
        else:
            kwargs[name] = values[name]
    defaults = function.__kwdefaults__ or {}
    kwargs.update({name: values[name] for name in only if name not in defaults or values[name] is not defaults[name]})
    kwargs.update(more)
    return args + list(rest), kwargs


def pytest_configure(config):
    with open(os.environ["RATCHET_RECORD"]) as file:
        config.pluginmanager.register(Recorder(json.load(file)), "ratchet-record-calls")
