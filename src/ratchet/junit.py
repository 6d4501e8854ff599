"""Test reports: JUnit XML, in the dialects of pytest, unittest-xml-reporting, CTest, Google Test and the like.

The report comes out of a sandbox, so it is untrusted: entities are refused, sizes and depths are limited, and
anything that is no report raises `ReportError`.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from ratchet.records import Outcome, TestCase, TestRun

MAX_REPORT_BYTES = 128 << 20
MAX_DEPTH = 64
MAX_CASES = 500_000
MAX_ELEMENTS = 2_000_000
MAX_ID_CHARS = 1000
MAX_MESSAGE_CHARS = 4000

# The parser begins a token anew with each piece that it is fed: in small ones, a long token takes hours.
_PIECE_BYTES = 4 << 20

_SEVERITY = (Outcome.SKIPPED, Outcome.PASSED, Outcome.FAILED, Outcome.ERROR)  # the worst last
_ELEMENTS = {"error": Outcome.ERROR, "failure": Outcome.FAILED, "skipped": Outcome.SKIPPED}
_STATUSES = {  # the attribute `status` or `result` of CTest, Google Test and others
    "error": Outcome.ERROR,
    "fail": Outcome.FAILED,
    "failed": Outcome.FAILED,
    "failure": Outcome.FAILED,
    "disabled": Outcome.SKIPPED,
    "notrun": Outcome.SKIPPED,
    "skipped": Outcome.SKIPPED,
    "suppressed": Outcome.SKIPPED,
}
_CONTROL_BYTES = bytes(code for code in range(0x20) if code not in b"\t\n\r")
_CHARACTER_REFERENCE = re.compile(rb"&#(?:x([0-9A-Fa-f]{1,8})|([0-9]{1,8}));")
_DECLARED_ENCODING = re.compile(rb"""^\s*<\?xml[^>]{0,200}\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_ADDRESS = re.compile(r"\b(at )0x[0-9a-fA-F]{6,16}\b|\b0x(?:7f|55|56)[0-9a-fA-F]{10}\b")


class ReportError(ValueError):
    """The data is no readable JUnit report."""


def parse(data: bytes) -> TestRun:
    """The test cases of a report, in its order.

    An id is `classname::name`. Memory addresses in it are replaced by `0x…`, so that ids are the same in every run;
    different cases that become equal thereby are numbered ("#2"). Cases with the same id (a test that passed and
    then failed in its teardown, subtests) are one case with the worst outcome. An expected failure counts as
    skipped: it says that the code is known not to work, which is no evidence of a working environment. A file that
    cannot be collected is an error with the id `path/of/the_file.py::collection`.

    Raises `ReportError` when the data is cut off, too large, or no JUnit report.
    """
    if len(data) > MAX_REPORT_BYTES:
        raise ReportError(f"the test report has {len(data)} bytes; the limit is {MAX_REPORT_BYTES}")
    if not data.strip():
        raise ReportError("the test report is empty")
    merged: dict[str, list[_Case]] = {}
    try:
        for number, case in enumerate(_cases(_legal(data)), start=1):
            if number > MAX_CASES:
                raise ReportError(f"the test report holds more than {MAX_CASES} tests")
            merged.setdefault(case.id, []).append(case)
    except ParseError as error:
        raise ReportError(f"the test report is no well-formed XML, or was cut off: {error}") from error
    except DefusedXmlException as error:
        raise ReportError(f"the test report declares entities or a document type, which is refused: {error}") from error
    except ReportError:
        raise
    except (LookupError, ValueError) as error:  # an unknown or a wrong encoding
        raise ReportError(f"the test report cannot be decoded: {error}") from error
    return TestRun(tuple(_numbered([_worst(cases) for cases in merged.values()])))


@dataclass(frozen=True)
class _Case:
    id: str
    outcome: Outcome
    message: str
    seconds: float


class _InPieces(io.BytesIO):
    """Bytes that are read in pieces of one size, whatever size is asked for."""

    def read(self, _size: int | None = -1, /) -> bytes:
        return super().read(_PIECE_BYTES)


def _cases(data: bytes) -> Iterator[_Case]:
    path: list[Element] = []
    elements = 0
    for event, element in iterparse(_InPieces(data), events=("start", "end"), forbid_dtd=True):
        if event == "start":
            elements += 1
            if elements > MAX_ELEMENTS:
                raise ReportError(f"the test report holds more than {MAX_ELEMENTS} elements")
            if not path and _tag(element) not in ("testsuites", "testsuite"):
                raise ParseError(f"the outermost element is <{_tag(element)[:40]}>, not <testsuites> or <testsuite>")
            path.append(element)
            if len(path) > MAX_DEPTH:
                raise ParseError(f"elements are nested more than {MAX_DEPTH} deep")
            continue
        path.pop()
        if _tag(element) == "testcase":
            suite = next((e.get("name", "") for e in reversed(path) if _tag(e) == "testsuite"), "")
            yield _case(element, suite)
        if not path or _tag(element) in ("testcase", "testsuite"):
            element.clear()  # what was read is not needed any more: keep the memory flat
            if path:
                path[-1][:] = []  # also what comes after it and is parsed already: its events hold it


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _case(element: Element, suite: str) -> _Case:
    outcome, message = _outcome(element)
    return _Case(_short(_case_id(element, suite, message)), outcome, message, _seconds(element.get("time", "")[:40]))


def _short(case_id: str) -> str:
    """Ids are kept and shown; one of enormous length ends in a hash of the whole."""
    if len(case_id) <= MAX_ID_CHARS:
        return case_id
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{case_id[: MAX_ID_CHARS - len(digest) - 1]}…{digest}"


def _outcome(element: Element) -> tuple[Outcome, str]:
    found = [(_ELEMENTS[_tag(child)], child) for child in element if _tag(child) in _ELEMENTS]
    if found:
        outcome, child = max(found, key=lambda pair: _SEVERITY.index(pair[0]))
        return outcome, _message(child)
    for attribute in ("status", "result"):
        status = _STATUSES.get(element.get(attribute, "").lower())
        if status is not None:
            return status, f"{attribute}: {element.get(attribute)}"
    return Outcome.PASSED, ""


def _message(child: Element) -> str:
    parts = (child.get("type", ""), child.get("message", ""), "".join(child.itertext()).strip())
    text = "\n".join(dict.fromkeys(part for part in parts if part))
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    half = MAX_MESSAGE_CHARS // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def _case_id(element: Element, suite: str, message: str) -> str:
    name = element.get("name", "").strip() or "unnamed"
    classname = element.get("classname", "").strip()
    file = element.get("file", "").strip()
    if not classname and ("collection failure" in message or "collection skipped" in message):
        return f"{file or _module_file(name)}::collection"
    return f"{classname or file or suite}::{name}" if classname or file or suite else name


def _module_file(name: str) -> str:
    return name if "/" in name or name.endswith(".py") else name.replace(".", "/") + ".py"


def _seconds(text: str) -> float:
    try:
        seconds = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds >= 0 else 0.0


def _worst(cases: list[_Case]) -> _Case:
    worst = max(cases, key=lambda case: _SEVERITY.index(case.outcome))
    return _Case(worst.id, worst.outcome, worst.message, sum(case.seconds for case in cases))


def _numbered(cases: list[_Case]) -> Iterator[TestCase]:
    seen: dict[str, int] = {}
    for case in cases:
        stable = _ADDRESS.sub(lambda match: (match[1] or "") + "0x…", case.id)
        seen[stable] = seen.get(stable, 0) + 1
        number = f" #{seen[stable]}" if seen[stable] > 1 else ""
        yield TestCase(stable + number, case.outcome, case.message, case.seconds)


def _legal(data: bytes) -> bytes:
    """The data without the bytes and character references that XML 1.0 forbids and careless writers emit."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data  # UTF-16: its bytes are no characters
    data = data.translate(None, _CONTROL_BYTES)
    data = _CHARACTER_REFERENCE.sub(lambda match: match[0] if _is_xml_character(match) else b"?", data)
    declared = _DECLARED_ENCODING.match(data)
    if declared is None or declared[1].lower() in (b"utf-8", b"utf8"):
        data = data.decode("utf-8", "replace").encode()
    return data


def _is_xml_character(match: re.Match[bytes]) -> bool:
    code = int(match[1], 16) if match[1] else int(match[2])
    return code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF


# --------------------------------------------------------------------------- does a failure come from being offline?

_OFFLINE = re.compile(
    r"""
      Temporary\ failure\ in\ name\ resolution | Name\ or\ service\ not\ known | nodename\ nor\ servname
    | No\ address\ associated\ with\ hostname | Name\ does\ not\ resolve | Host\ name\ lookup\ failure
    | Could\ not\ resolve\ (?:host|proxy) | unable\ to\ resolve\ host | Unknown\ host\b | UnknownHostException
    | \bgaierror\b | \bNameResolutionError\b | \bClientConnectorDNSError\b | \bEAI_AGAIN\b | \bENOTFOUND\b
    | getaddrinfo\ failed | \bno\ such\ host\b | DNS\ (?:operation|lookup)\ (?:timed\ out|failed)
    | Network\ is\ unreachable | \bENETUNREACH\b | No\ route\ to\ host | \bEHOSTUNREACH\b
    | \[Errno\ (?:101|113|-2|-3|-5)\] | Tunnel\ connection\ failed
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CONNECTION_FAILED = re.compile(
    r"Connection refused|ECONNREFUSED|\[Errno 111\]|Max retries exceeded|Cannot connect to host|Failed to connect to"
    r"|ConnectTimeout|Connection timed out|ETIMEDOUT|\[Errno 110\]",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"""
      host=['"]([^'"]{1,255})['"]
    | \bconnect\ to\ (?:host\ |server\ at\ )?['"]?([\w.-]{1,255}|\[[0-9a-f:]+\])
    | \b[a-z][a-z0-9+.-]{1,20}://(?:[^\s/@'"]{1,255}@)?([\w.-]{1,255}|\[[0-9a-f:]+\])
    | \(['"]([\w.:-]{1,255})['"],\ \d{1,5}
    | \b(?:ECONNREFUSED|ETIMEDOUT)\ ([\w.:-]{1,255}):\d
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LOOPBACK = re.compile(
    r"^(?:localhost|.*\.localhost|localhost\.localdomain|127\.[\d.]+|::1|0\.0\.0\.0|::|ip6-localhost)$"
)


def needs_network(message: str) -> bool:
    """Whether the message of a failed test says that it wanted a host which an offline sandbox does not reach.

    A name that does not resolve and a network without a route are signs by themselves; a connection that was
    refused or timed out is one only where a host other than loopback is named (else a local service is down).
    """
    if _OFFLINE.search(message):
        return True
    if not _CONNECTION_FAILED.search(message):
        return False
    hosts = (next(group for group in match.groups() if group) for match in _HOST.finditer(message))
    return any(not _LOOPBACK.match(host.strip("[]").rstrip(".").lower()) for host in hosts)
