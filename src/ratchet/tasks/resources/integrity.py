"""Notices when functions that decide how tests end are replaced while tests run.

What is compared: the functions and methods of the modules below and of pluggy, and Python's own built-in functions and
types, by identity and by their code. That finds a patched runner, assertion, report or comparison. It cannot find what
leaves these as they are: an object that claims to be equal to everything, a test that is replaced in its own module
before it is collected, a change of this very list in the memory of the process.
"""

import builtins
import sys
import types

MODULES = (
    "_pytest.assertion",
    "_pytest.assertion.rewrite",
    "_pytest.assertion.util",
    "_pytest.config",
    "_pytest.doctest",
    "_pytest.fixtures",
    "_pytest.main",
    "_pytest.nodes",
    "_pytest.outcomes",
    "_pytest.python",
    "_pytest.python_api",
    "_pytest.raises",
    "_pytest.recwarn",
    "_pytest.reports",
    "_pytest.runner",
    "_pytest.skipping",
    "_pytest.unittest",
    "unittest.case",
    "unittest.loader",
    "unittest.suite",
)
# Beside the types. The rest is patched by honest tests and plugins for whole sessions, and decides nothing.
BUILTINS = {"abs", "all", "any", "callable", "compile", "eval", "exec", "getattr", "hasattr", "hash", "id", "isinstance"}
BUILTINS |= {"issubclass", "iter", "len", "max", "min", "next", "repr", "round", "sorted", "sum"}
# The first is replaced by a part of pytest itself (legacypath) in every run, the other one by pytest-subtests; what is
# skipped counts as failed, so nobody gains by it.
REPLACED_BY_PLUGINS = {"_getini_unknown_type", "addSkip"}


class Originals:
    """What the functions were when this was made; those of `own` modules are looked after as well."""

    def __init__(self, *own):
        self.entries = []
        for name in sorted(vars(builtins)):
            value = vars(builtins)[name]
            if name in BUILTINS or isinstance(value, type):
                self.entries.append(("builtins." + name, vars(builtins), name, value, None))
        names = [name for name in sorted(sys.modules) if name in MODULES or name.startswith("pluggy.")]
        for module in [sys.modules[name] for name in names] + list(own):
            self.entries += functions_of(module)

    def accept(self, outside):
        """Take what is there now for the original, where its code is not below the folder `outside`."""
        prefix = outside + "/"
        for place, (name, holder, key, value, code) in enumerate(self.entries):
            now = holder.get(key)
            if now is value and code_of(now) is code:
                continue
            code = code_of(now)
            if code is not None and not code.co_filename.startswith(prefix):
                self.entries[place] = (name, holder, key, now, code)

    def replaced(self):
        """Names of what was replaced since the last time this was asked."""
        found = []
        for place, (name, holder, key, value, code) in enumerate(self.entries):
            now = holder.get(key)
            if now is not value or (code is not None and code_of(now) is not code):
                found.append(name)
                self.entries[place] = (name, holder, key, now, code_of(now))
        return found


def functions_of(module):
    entries = []
    for key, value in sorted(vars(module).items(), key=lambda pair: pair[0]):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type):
            for name, member in sorted(vars(value).items(), key=lambda pair: pair[0]):
                if code_of(member) is not None and name not in REPLACED_BY_PLUGINS:
                    full = "%s.%s.%s" % (module.__name__, key, name)
                    entries.append((full, vars(value), name, member, code_of(member)))
        elif code_of(value) is not None:
            entries.append(("%s.%s" % (module.__name__, key), vars(module), key, value, code_of(value)))
    return entries


def code_of(value):
    """The code of a function, a method of any kind or a property; None where it has none."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if not isinstance(value, types.FunctionType):
        value = getattr(value, "__wrapped__", value)
    return value.__code__ if isinstance(value, types.FunctionType) else None
