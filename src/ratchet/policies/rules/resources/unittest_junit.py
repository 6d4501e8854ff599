"""Run a test program that is built on unittest, and leave a JUnit report of what it ran.

    python unittest_junit.py REPORT -m package.module [ARGUMENTS]
    python unittest_junit.py REPORT script.py [ARGUMENTS]

This file is copied into environments whose projects have a test runner of their own. It runs with whatever Python
the project needs and imports nothing but the standard library. It listens to `unittest.TestResult`, which every
such runner ends up calling, and so reports what was really run, whatever the runner prints or exits with. Where the variable
UNITTEST_JUNIT_TIMEOUT_S is set, a test that takes longer fails.
"""

import atexit
import os
import runpy
import signal
import sys
import threading
import time
import traceback
import unittest
from xml.sax.saxutils import escape, quoteattr

cases = {}  # test id: [outcome, message, seconds]
started = {}
process = os.getpid()
TIMEOUT_S = int(os.environ.get("UNITTEST_JUNIT_TIMEOUT_S", "0"))
RANK = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


def record(test, outcome, message=""):
    name = test.id() if hasattr(test, "id") else str(test)
    seconds = time.time() - started.get(name, time.time())
    known = cases.get(name)
    if known is None or RANK[outcome] > RANK[known[0]]:
        cases[name] = [outcome, message, seconds]


def listen(method, outcome, describe):
    original = getattr(unittest.TestResult, method)

    def wrapped(self, test, *args):
        record(test, outcome, describe(*args))
        return original(self, test, *args)

    setattr(unittest.TestResult, method, wrapped)


def error_text(error):
    if isinstance(error, tuple) and len(error) == 3 and error[0] is not None:
        try:
            return "".join(traceback.format_exception(*error))[-8000:]
        except Exception:  # a test may raise what cannot be printed
            return repr(error[0])
    return str(error)[-8000:]


def limit_time(seconds):
    """Let the test that is running fail after `seconds`."""
    if seconds and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, too_slow)
        signal.alarm(seconds)


def too_slow(*_):
    raise AssertionError("over its time limit of %d s" % TIMEOUT_S)


def listen_to_unittest():
    def start(self, test, original=unittest.TestResult.startTest):
        limit_time(TIMEOUT_S)
        started[test.id() if hasattr(test, "id") else str(test)] = time.time()
        return original(self, test)

    def subtest(self, test, sub, error, original=unittest.TestResult.addSubTest):
        if error is not None:
            failed = issubclass(error[0], test.failureException)
            record(test, "failed" if failed else "error", error_text(error))
        return original(self, test, sub, error)

    def stop(self, test, original=unittest.TestResult.stopTest):
        if TIMEOUT_S:
            signal.alarm(0)
        return original(self, test)

    unittest.TestResult.startTest = start
    unittest.TestResult.stopTest = stop
    unittest.TestResult.addSubTest = subtest
    listen("addSuccess", "passed", lambda *args: "")
    listen("addFailure", "failed", lambda *args: error_text(args[0] if args else ""))
    listen("addError", "error", lambda *args: error_text(args[0] if args else ""))
    listen("addSkip", "skipped", lambda *args: str(args[0] if args else ""))
    listen("addExpectedFailure", "skipped", lambda *args: "expected failure")
    listen("addUnexpectedSuccess", "failed", lambda *args: "unexpected success")


def clean(text):
    return "".join(c if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) < 0xE000) else "?" for c in text)


def write(path):
    if os.getpid() != process:  # a child that the tests forked
        return
    rows = []
    for name, (outcome, message, seconds) in cases.items():
        classname, _, method = name.rpartition(".")
        tag = {"failed": "failure", "error": "error", "skipped": "skipped"}.get(outcome)
        message = clean(message)
        last = message.strip().splitlines()[-1] if message.strip() else outcome
        inner = "<%s message=%s>%s</%s>" % (tag, quoteattr(last), escape(message), tag) if tag else ""
        rows.append(
            "<testcase classname=%s name=%s time=\"%.3f\">%s</testcase>"
            % (quoteattr(clean(classname)), quoteattr(clean(method)), seconds, inner)
        )
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder)
    with open(path, "wb") as file:
        text = "<testsuites><testsuite name=\"unittest\">%s</testsuite></testsuites>" % "\n".join(rows)
        file.write(text.encode("utf-8"))


def main(report, arguments):
    report = os.path.abspath(report)
    listen_to_unittest()
    atexit.register(write, report)
    sys.path[0] = os.getcwd()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 3 or (sys.argv[2] == "-m" and len(sys.argv) < 4):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
