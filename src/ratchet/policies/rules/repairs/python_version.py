"""The Python is too new or too old for the project."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ratchet.policies.rules.distributions import requirement_for
from ratchet.policies.rules.repairs import changes, names
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import (
    BUILD_STAGES,
    EVERY_STAGE,
    TEST_STAGES,
    Reading,
    Rule,
    line_of,
    pattern,
)

# Standard modules that are gone, and the release that lacked them first. Source: "What's New in Python" 3.9 to 3.13.
REMOVED_MODULES = {
    "dummy_threading": "3.9", "_bootlocale": "3.10", "formatter": "3.10", "parser": "3.10", "symbol": "3.10",
    "macpath": "3.8", "binhex": "3.11", "asynchat": "3.12", "asyncore": "3.12", "distutils": "3.12", "imp": "3.12",
    "smtpd": "3.12", "aifc": "3.13", "audioop": "3.13", "cgi": "3.13", "cgitb": "3.13", "chunk": "3.13",
    "crypt": "3.13", "imghdr": "3.13", "lib2to3": "3.13", "mailcap": "3.13", "msilib": "3.13", "nis": "3.13",
    "nntplib": "3.13", "ossaudiodev": "3.13", "pipes": "3.13", "sndhdr": "3.13", "spwd": "3.13", "sunau": "3.13",
    "telnetlib": "3.13", "uu": "3.13", "xdrlib": "3.13", "longintrepr": "3.11",
}  # fmt: skip

# Standard modules that came, and the release that had them first.
NEW_MODULES = {"graphlib": "3.9", "zoneinfo": "3.9", "tomllib": "3.11", "annotationlib": "3.14", "compression": "3.14"}

# Modules of Python 2 only: no Python that is offered has them.
PYTHON_2_MODULES = frozenset(
    [
        "StringIO",
        "cStringIO",
        "cPickle",
        "urllib2",
        "urlparse",
        "httplib",
        "ConfigParser",
        "Queue",
        "Tkinter",
        "tkMessageBox",
        "__builtin__",
        "BaseHTTPServer",
        "SimpleHTTPServer",
        "SocketServer",
        "Cookie",
        "cookielib",
        "xmlrpclib",
        "HTMLParser",
        "htmlentitydefs",
        "UserDict",
        "UserString",
        "commands",
        "dircache",
        "exceptions",
        "sets",
        "thread",
        "copy_reg",
        "anydbm",
        "dbhash",
        "whichdb",
        "robotparser",
    ]
)

# Names that left the standard library, and the release that lacked them first.
_REMOVED_NAMES = (
    (r"module 'collections' has no attribute '(?:Mapping|MutableMapping|Iterable|Iterator|Sequence|MutableSequence"
     r"|Set|MutableSet|Callable|Hashable|Sized|Container|Generator|Awaitable|Coroutine|\w*View)'", "3.10"),
    (r"cannot import name '\w+' from 'collections' ", "3.10"),
    (r"module 'inspect' has no attribute '(?:getargspec|formatargspec)'", "3.11"),
    (r"module 'asyncio' has no attribute 'coroutine'", "3.11"),
    (r"cannot import name 'coroutine' from 'asyncio' ", "3.11"),
    (r"module 'asyncio' has no attribute 'async'", "3.7"),
    (r"module 'random' has no attribute 'jumpahead'", "3.0"),
    (r"module 'time' has no attribute 'clock'", "3.8"),
    (r"module 'platform' has no attribute '(?:linux_distribution|dist)'", "3.8"),
    (r"module 'fractions' has no attribute 'gcd'", "3.9"),
    (r"cannot import name 'gcd' from 'fractions' ", "3.9"),
    (r"module 'base64' has no attribute '(?:en|de)codestring'", "3.9"),
    (r"module 'cgi' has no attribute '(?:escape|parse_qs|parse_qsl)'", "3.8"),
    (r"module 'html' has no attribute 'unescape'|'HTMLParser' object has no attribute 'unescape'", "3.9"),
    (r"'(?:\w+\.)*Thread' object has no attribute 'isAlive'", "3.9"),
    (r"module 'gettext' has no attribute 'lgettext'", "3.11"),
    (r"'array\.array' object has no attribute '(?:to|from)string'", "3.9"),
    (r"'Element' object has no attribute '(?:getchildren|getiterator)'", "3.9"),
    (r"module 'configparser' has no attribute 'SafeConfigParser'", "3.12"),
    (r"'\w+' object has no attribute '(?:assertEquals|assertNotEquals|assertItemsEqual|assertRegexpMatches"
     r"|assertRaisesRegexp|assertAlmostEquals|assertNotAlmostEquals|assert_|failUnless|failIf|failUnlessEqual"
     r"|assertNotRegexpMatches|assertDictContainsSubset)'", "3.12"),
    (r"module 'pkgutil' has no attribute '(?:ImpImporter|ImpLoader)'", "3.12"),
    (r"module 'ssl' has no attribute '(?:wrap_socket|match_hostname)'", "3.12"),
    (r"cannot import name 'match_hostname' from 'ssl' ", "3.12"),
    (r"module 'sqlite3' has no attribute 'OptimizedUnicode'", "3.12"),
    (r"module 'unittest' has no attribute '(?:makeSuite|findTestCases|_TextTestResult)'", "3.13"),
    (r"module 'locale' has no attribute 'resetlocale'", "3.13"),
    (r"module 'locale' has no attribute 'format'", "3.12"),
    (r"'PosixPath' object has no attribute '_\w+'|type object 'PosixPath' has no attribute '_\w+'", "3.12"),
    (r"module 'ast' has no attribute '(?:Str|Num|Bytes|NameConstant|Ellipsis)'", "3.14"),
    (r"module 'pkgutil' has no attribute '(?:find_loader|get_loader)'", "3.14"),
    (r"module 'typing' has no attribute 'io'|module 'typing' has no attribute 're'", "3.13"),
    (r"There is no current event loop in thread 'MainThread'", "3.14"),
    (r"required field \"type_ignores\" missing from Module", "3.8"),
    (r"code\(\) (?:takes|argument|expected).*|code expected at least \d+ arguments", "3.11"),
)  # fmt: skip

# Names and syntax that came, and the release that had them first.
_NEW_NAMES = (
    (r"unsupported operand type\(s\) for \|: '(?:type|_GenericAlias|NoneType|\w+Meta)' and", "3.10"),
    (r"'type' object is not subscriptable|'ABCMeta' object is not subscriptable", "3.9"),
    (r"'str' object has no attribute 'remove(?:prefix|suffix)'", "3.9"),
    (r"cannot import name '(?:Annotated)' from 'typing' ", "3.9"),
    (r"cannot import name '(?:ParamSpec|TypeAlias|Concatenate|TypeGuard)' from 'typing' ", "3.10"),
    (r"cannot import name '(?:Self|Never|LiteralString|Required|NotRequired|Unpack|TypeVarTuple|assert_never"
     r"|reveal_type|assert_type|dataclass_transform)' from 'typing' ", "3.11"),
    (r"cannot import name '(?:override|TypeAliasType)' from 'typing' ", "3.12"),
    (r"cannot import name '(?:ReadOnly|TypeIs|NoDefault)' from 'typing' ", "3.13"),
    (r"cannot import name 'StrEnum' from 'enum' ", "3.11"),
    (r"cannot import name 'UTC' from 'datetime' ", "3.11"),
    (r"cannot import name '(?:pairwise)' from 'itertools' ", "3.10"),
    (r"cannot import name 'batched' from 'itertools' ", "3.12"),
    (r"cannot import name 'files' from 'importlib\.resources' ", "3.9"),
    (r"module 'asyncio' has no attribute '(?:TaskGroup|timeout|Runner)'", "3.11"),
    (r"module 'enum' has no attribute 'StrEnum'", "3.11"),
    (r"name '(?:ExceptionGroup|BaseExceptionGroup)' is not defined", "3.11"),
    (r"name '(?:anext|aiter)' is not defined", "3.10"),
    (r"dataclass\(\) got an unexpected keyword argument '(?:slots|kw_only|match_args)'", "3.10"),
    (r"zip\(\) (?:got|takes).* keyword argument.*", "3.10"),
)  # fmt: skip

_SYNTAX_CONTEXT = re.compile(
    r"^\s*(?:async )?(match .+:|case .+:|except\* ?.*:|type \w+.* = .*|def \w+\[.*|class \w+\[.*)"
)
_PYTHON_2 = re.compile(
    r"Missing parentheses in call to '(?:print|exec)'|multiple exception types must be parenthesized"
    r"|leading zeros in decimal integer literals|invalid (?:decimal literal|hexadecimal literal)"
    r"|inconsistent use of tabs and spaces"
)


def allowed(reading: Reading, test: Callable[[Version], bool]) -> list[str]:
    """The Pythons that can be had, that the project allows and that pass `test`; those nearest to the present first,
    those that the project names (CI, tox, classifiers) before the others."""
    survey = reading.context.survey
    named = set(survey.values("python-version")) | set(survey.values("python-classifier"))
    bounds = [spec for text in survey.values("requires-python") if (spec := _specifier(text)) is not None]
    now = Version(reading.plan.python)
    found = [
        (text not in named, abs(version.minor - now.minor), text)
        for text in reading.context.pythons
        if (version := _version(text)) is not None
        and version != now
        and test(version)
        and all(_within(spec, version) for spec in bounds)
    ]
    return [text for _, _, text in sorted(found)]


def older_than(release: str, reading: Reading, line: str, why: str) -> Iterator[Repair]:
    """Go to a Python before `release`."""
    if Version(reading.plan.python) < Version(release):
        return
    yield from _switch(allowed(reading, lambda v: v < Version(release)), line, why)


def at_least(release: str, reading: Reading, line: str, why: str) -> Iterator[Repair]:
    """Go to a Python of `release` or later."""
    if Version(reading.plan.python) >= Version(release):
        return
    yield from _switch(allowed(reading, lambda v: v >= Version(release)), line, why)


def standard_library(module: str, reading: Reading, line: str) -> Iterator[Repair]:
    """A standard module that this Python lacks: its successor on the index where there is one for this Python, or
    else a Python that has it."""
    if module in NEW_MODULES:
        yield from at_least(NEW_MODULES[module], reading, line, f"{module} came with Python {NEW_MODULES[module]}")
        return
    removed = REMOVED_MODULES[module]
    requirement = names.requirement(requirement_for(module))
    if module == "distutils" and requirement:
        yield Repair("missing-module:distutils", f"setuptools brings distutils: {line}", changes.require(requirement))
        return
    switched = list(older_than(removed, reading, line, f"{module} left with Python {removed}"))
    yield from switched
    if not switched and requirement and requirement != module:
        yield Repair(
            f"missing-module:{module}",
            f"{requirement} brings the module that left with Python {removed}: {line}",
            changes.require(requirement),
        )


def _switch(candidates: list[str], line: str, why: str) -> Iterator[Repair]:
    for version in candidates[:1]:
        yield Repair(f"python:{version}", f"{why}: {line}", changes.use_python(version), alone=True)


def _older(release: str) -> Callable[[re.Match[str], Reading], Iterator[Repair]]:
    return lambda match, reading: older_than(release, reading, line_of(match), f"gone since Python {release}")


def _newer(release: str) -> Callable[[re.Match[str], Reading], Iterator[Repair]]:
    return lambda match, reading: at_least(release, reading, line_of(match), f"came with Python {release}")


def switch_to(specifier: str, reading: Reading, line: str) -> Iterator[Repair]:
    """Go to a Python that a PEP 440 specifier allows."""
    spec = _specifier(specifier.rstrip(",. "))
    if spec is not None:
        fitting = allowed(reading, lambda v: _within(spec, v))
        yield from _switch(fitting, line, f"a Python {specifier} is asked for")


def _requires_python(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    yield from switch_to(match["spec"], reading, line_of(match))


def _syntax(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    line = line_of(match)
    above = match.string[max(0, match.start() - 600) : match.start()].splitlines()[-4:]
    if _PYTHON_2.search(line):
        return
    if "invalid syntax" in line and any(re.search(r"\basync\b *[=.,)]|\.async\b", text) for text in above):
        yield from older_than("3.7", reading, line, "async is a keyword since Python 3.7")
        return
    release = "3.10"
    for text in above:
        if found := _SYNTAX_CONTEXT.match(text):
            release = {"exc": "3.11", "typ": "3.12", "def": "3.12", "cla": "3.12"}.get(found[1][:3], "3.10")
    if "f-string" in line:
        release = "3.12"
    newer = allowed(reading, lambda v: v >= max(Version(release), Version(reading.plan.python)))
    yield from _switch(newer, line, "syntax of a newer Python")


def _old_c_api(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    release = next((r for text, r in _C_API if re.search(text, match[0])), "3.11")
    why = "the C sources fit only older Pythons"
    yield from older_than(release, reading, line_of(match), why)


# Errors of C sources that were written (by Cython, mostly) for an older Python's interface.
_C_API = (
    (r"longintrepr\.h", "3.11"),
    (r"PyThreadState.*(?:exc_type|use_tracing)|PyFrameObject|f_lasti|f_code|PyCodeObject|co_code", "3.11"),
    (r"PyUnicode_(?:READY|WCHAR|AS_UNICODE)|PyUnicode_GET_SIZE|PyUnicode_FromUnicode|ob_shash|ob_digit", "3.12"),
    (r"_PyLong_AsByteArray|_PyInterpreterState_GetConfig|_PyUnicode_FastCopyCharacters|_PyList_Extend", "3.13"),
    (r"tp_print", "3.9"),
    (r"PyEval_CallObject|PyCFunction_New|Py_UNICODE", "3.13"),
)

_COMPILER_ERROR = (
    r"^[^\n]{0,300}(?:error|warning): [^\n]{0,200}(?:longintrepr\.h|has no member named .(?:exc_type"
    r"|use_tracing|f_lasti|"
    r"f_code|co_code|ob_digit|ob_shash|tp_print).|invalid use of incomplete typedef .PyFrameObject.|"
    r"too few arguments to function ._PyLong_AsByteArray.|implicit declaration of function ._PyUnicode_\w+.|"
    r"implicit declaration of function ._PyInterpreterState_GetConfig.)"
)

_NO_PYTHON = (
    r"^(?:.*cause: )?(?:Because )?the current Python version \([\d.]+\) does not satisfy Python(?P<spec>[<>=!~][^ ]+)"
)

RULES = (
    Rule(pattern(_NO_PYTHON), _requires_python, BUILD_STAGES),
    Rule(
        pattern(r"requires a different Python: [\d.]+ not in '(?P<spec>[^']{1,100})'"), _requires_python, BUILD_STAGES
    ),
    Rule(pattern(r"requires Python '(?P<spec>[^']{1,100})' but the running Python is"), _requires_python, BUILD_STAGES),
    Rule(
        pattern(r"^No interpreter found for Python (?P<spec>[<>=!~][\w.,<>=!~]{1,60})"), _requires_python, BUILD_STAGES
    ),
    Rule(pattern(_COMPILER_ERROR), _old_c_api, BUILD_STAGES),
    Rule(pattern(r"^ *(?:SyntaxError|IndentationError): [^\n]{0,200}"), _syntax, TEST_STAGES),
    *(Rule(pattern(rf"^\w*Error: .*(?:{text})"), _older(release), EVERY_STAGE) for text, release in _REMOVED_NAMES),
    *(Rule(pattern(rf"^\w*Error: .*(?:{text})"), _newer(release), EVERY_STAGE) for text, release in _NEW_NAMES),
)


def _specifier(text: str) -> SpecifierSet | None:
    try:
        return SpecifierSet(text)
    except ValueError:
        return None


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:  # none, or a number with thousands of digits
        return None


def _within(spec: SpecifierSet, version: Version) -> bool:
    """Whether some patch release of a minor version satisfies a specifier."""
    return any(spec.contains(f"{version.major}.{version.minor}.{patch}", prereleases=True) for patch in (0, 5, 99))
