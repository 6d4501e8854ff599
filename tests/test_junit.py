"""Reading test reports: real ones from pytest, other dialects, and hostile ones."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratchet import junit
from ratchet.junit import MAX_MESSAGE_CHARS, ReportError, needs_network, parse
from ratchet.records import Outcome, TestRun

SUITE = """
import unittest, pytest, warnings

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_skips(): pytest.skip("not here")
@pytest.mark.xfail(reason="known")
def test_known_bug(): assert False
@pytest.mark.xfail(strict=True)
def test_unexpected_pass(): pass
@pytest.fixture
def broken(): raise RuntimeError("no fixture")
@pytest.fixture
def late():
    yield
    raise RuntimeError("teardown")
def test_setup_error(broken): pass
def test_teardown_error(late): pass
def test_fails_and_teardown_error(late): assert False
@pytest.mark.parametrize("value", [object(), object()], ids=repr)
def test_addresses(value): pass
def test_control_character(): assert "\\x00\\x1b[31m" == "\\ud800"
class TestClass:
    def test_method(self): pass
class Unit(unittest.TestCase):
    def test_sub(self):
        for n in range(3):
            with self.subTest(n=n): self.assertNotEqual(n, 1)
"""


def run_pytest(tmp_path: Path, family: str = "xunit2") -> bytes:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_all.py").write_text(SUITE)
    (tmp_path / "tests" / "test_broken.py").write_text("import no_such_module_at_all")
    (tmp_path / "tests" / "test_module_skip.py").write_text("import pytest; pytest.skip('x', allow_module_level=True)")
    command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    command += ["--junitxml=report.xml", "-o", f"junit_family={family}", "tests", "--rootdir=."]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    return (tmp_path / "report.xml").read_bytes()


def outcomes(run: TestRun) -> dict[str, Outcome]:
    return {case.id: case.outcome for case in run.cases}


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
def test_a_real_pytest_report_is_read_per_test(tmp_path: Path, family: str) -> None:
    found = outcomes(parse(run_pytest(tmp_path, family)))
    assert found == {
        "tests/test_broken.py::collection": Outcome.ERROR,
        "tests/test_module_skip.py::collection": Outcome.SKIPPED,
        "tests.test_all::test_passes": Outcome.PASSED,
        "tests.test_all::test_fails": Outcome.FAILED,
        "tests.test_all::test_skips": Outcome.SKIPPED,
        "tests.test_all::test_known_bug": Outcome.SKIPPED,
        "tests.test_all::test_unexpected_pass": Outcome.FAILED,
        "tests.test_all::test_setup_error": Outcome.ERROR,
        "tests.test_all::test_teardown_error": Outcome.ERROR,
        "tests.test_all::test_fails_and_teardown_error": Outcome.ERROR,
        "tests.test_all::test_addresses[<object object at 0x…>]": Outcome.PASSED,
        "tests.test_all::test_addresses[<object object at 0x…>] #2": Outcome.PASSED,
        "tests.test_all::test_control_character": Outcome.FAILED,
        "tests.test_all.TestClass::test_method": Outcome.PASSED,
        "tests.test_all.Unit::test_sub": Outcome.FAILED,
    }


def test_ids_are_the_same_in_two_runs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (outcomes(parse(run_pytest(tmp_path / name))) for name in ("a", "b"))
    assert list(first) == list(second)


def test_messages_say_what_failed_and_stay_short(tmp_path: Path) -> None:
    cases = {case.id: case for case in parse(run_pytest(tmp_path)).cases}
    assert "assert 1 == 2" in cases["tests.test_all::test_fails"].message
    assert "no_such_module_at_all" in cases["tests/test_broken.py::collection"].message
    long = (
        f'<testsuite><testcase name="t"><failure message="{"start" + "x" * 100_000 + "end"}"/></testcase></testsuite>'
    )
    (case,) = parse(long.encode()).cases
    assert case.message.startswith("start") and case.message.endswith("end")
    assert len(case.message) <= MAX_MESSAGE_CHARS + 10


def test_nested_suites_namespaces_and_a_single_suite_are_read() -> None:
    nested = b"""<testsuites xmlns="http://example.org"><testsuite name="a"><testsuite name="b">
      <testcase name="one" time="1,234.5"/></testsuite><testcase classname="C" name="two" time="nan"/></testsuite></testsuites>"""
    one, two = parse(nested).cases
    assert (one.id, one.seconds, two.id, two.seconds) == ("b::one", 1234.5, "C::two", 0.0)


def test_unittest_xml_reporting() -> None:
    data = b"""<?xml version="1.0" encoding="UTF-8"?><testsuite errors="0" failures="1" file="tests/test_a.py" name="A-2026" tests="2">
      <testcase classname="tests.test_a.A" file="tests/test_a.py" line="3" name="test_x" time="0.001"/>
      <testcase classname="tests.test_a.A" name="test_y"><failure type="AssertionError" message="no"><![CDATA[trace]]></failure>
      <system-out><![CDATA[out]]></system-out></testcase></testsuite>"""
    assert outcomes(parse(data)) == {"tests.test_a.A::test_x": Outcome.PASSED, "tests.test_a.A::test_y": Outcome.FAILED}


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ('status="run" result="completed"', Outcome.PASSED),
        ('status="notrun"', Outcome.SKIPPED),
        ('status="run" result="skipped"', Outcome.SKIPPED),
        ('status="disabled"', Outcome.SKIPPED),
        ('status="fail"', Outcome.FAILED),
    ],
)
def test_outcomes_given_as_attributes(attributes: str, outcome: Outcome) -> None:
    (case,) = parse(f'<testsuite><testcase name="t" {attributes}/></testsuite>'.encode()).cases
    assert case.outcome is outcome


def test_cases_with_one_id_are_merged_and_the_worst_counts() -> None:
    data = b"""<testsuite><testcase classname="c" name="t" time="1"/>
      <testcase classname="c" name="t" time="2"><error message="teardown"/></testcase></testsuite>"""
    (case,) = parse(data).cases
    assert (case.id, case.outcome, case.message, case.seconds) == ("c::t", Outcome.ERROR, "teardown", 3.0)


def test_numbers_in_ids_that_are_no_addresses_stay() -> None:
    data = b'<testsuite><testcase name="t[0xdeadbeef]"/><testcase name="t[0x00000001]"/></testsuite>'
    assert [case.id for case in parse(data).cases] == ["t[0xdeadbeef]", "t[0x00000001]"]


def test_a_report_without_tests_is_an_empty_run() -> None:
    assert parse(b"<testsuites><testsuite name='pytest' tests='0'/></testsuites>") == TestRun()


def test_careless_writers_are_forgiven() -> None:
    data = b'<testsuite><testcase name="t\x1b[31m&#27;\xff"><failure>&#x1b;[0m \x00</failure></testcase></testsuite>'
    (case,) = parse(data).cases
    assert case.outcome is Outcome.FAILED


def test_declared_encodings_are_followed() -> None:
    text = '<?xml version="1.0" encoding="{}"?><testsuite><testcase name="é"/></testsuite>'
    for encoding in ("iso-8859-1", "utf-16", "utf-8"):
        (case,) = parse(text.format(encoding).encode(encoding)).cases
        assert case.id == "é"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  \n",
        b"collected 3 items",
        b"<html><body/></html>",
        b'<testsuite><testcase name="a"/><testcase name="b">',
        b'<?xml version="1.0" encoding="no-such"?><testsuite/>',
        b'<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuite name="&a;"/>',
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>',
        b"<testsuite>" * 100_000,
        b"\xff\xfe<",
        b"\x00" * 1000,
    ],
)
def test_what_is_no_whole_report_is_refused(data: bytes) -> None:
    with pytest.raises(ReportError):
        parse(data)


def test_a_large_report_is_read_in_reasonable_time() -> None:
    cases = "".join(f'<testcase classname="c" name="t{n}" time="0.01"/>' for n in range(50_000))
    started = time.monotonic()
    assert len(parse(f"<testsuite>{cases}</testsuite>".encode()).cases) == 50_000
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "message",
    [
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "urllib3.exceptions.NameResolutionError: <HTTPConnection(host='example.com', port=80)>: Failed to resolve",
        "OSError: [Errno 101] Network is unreachable",
        "curl: (6) Could not resolve host: example.com",
        "Error: getaddrinfo EAI_AGAIN registry.example.com",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='example.com', port=443): Max retries exceeded with url: /",
        "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host example.com:443 ssl:default",
        "ConnectionRefusedError: [Errno 111] Connect call failed ('93.184.216.34', 80)",
        "dial tcp: lookup example.com: no such host",
        "OSError: Tunnel connection failed: 403 Forbidden",
    ],
)
def test_failures_for_want_of_a_network_are_known(message: str) -> None:
    assert needs_network(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "AssertionError: assert 1 == 2",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "HTTPConnectionPool(host='localhost', port=8080): Max retries exceeded with url: / [Errno 111] Connection refused",
        "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5432)",
        'connection to server at "127.0.0.1", port 5432 failed: Connection refused',
        "Cannot connect to host [::1]:80 Connection refused",
        "AssertionError: 'https://example.com' != 'https://example.org'",
        "TimeoutError: the test took too long",
    ],
)
def test_other_failures_are_not_taken_for_it(message: str) -> None:
    assert not needs_network(message)


@pytest.mark.parametrize(
    "content",
    [
        b'<testcase name="' + b"a" * (16 << 20) + b'"/>',
        b'<testcase name="a" time="' + b"1" * (16 << 20) + b'"/>',
        b"<!--" + b"a " * (8 << 20) + b"-->",
        b'<testcase name="a"><failure>' + b"a" * (16 << 20) + b"</failure></testcase>",
    ],
    ids=["name", "time", "comment", "message"],
)
def test_a_token_of_many_megabytes_is_read_in_reasonable_time_and_kept_short(content: bytes) -> None:
    started = time.process_time()
    run = parse(b"<testsuite>" + content + b"</testsuite>")
    assert time.process_time() - started < 15
    assert all(len(case.id) <= junit.MAX_ID_CHARS for case in run.cases)


def test_ids_of_enormous_length_stay_different() -> None:
    rows = "".join(f'<testcase name="{"a" * 5000}{end}"/>' for end in "xyz")
    assert len({case.id for case in parse(f"<testsuite>{rows}</testsuite>".encode()).cases}) == 3


@pytest.mark.parametrize(("limit", "row"), [("MAX_CASES", '<testcase name="{}"/>'), ("MAX_ELEMENTS", "<x/>")])
def test_a_report_of_endless_rows_is_refused(limit: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, limit, 1000)
    rows = "".join(row.format(number) for number in range(1001))
    with pytest.raises(ReportError, match="more than 1000"):
        parse(f"<testsuite>{rows}</testsuite>".encode())
