"""What a task says, and what it must not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.patches import removed_lines
from ratchet.policies.scripted import ScriptedModel
from ratchet.records import Outcome, Reply, TestCase
from ratchet.task_records import FileChange, Task, TaskKind
from ratchet.tasks.candidates import Candidate, Definition
from ratchet.tasks.statement import EVIDENCE, message_without_traces, rewrite, statement

RIGHT = '''\
def clamp(value, low=0, high=10):
    """Bring a value into a range.

    Both ends belong to it.
    """
    if value > high:
        return high_end_of(high)
    return max(value, low)
'''
WRONG = RIGHT.replace("value > high", "value >= high + 1")
CLAMP = Definition(
    "shapes/ranges.py",
    "clamp",
    "function",
    "def clamp(value, low=0, high=10)",
    "Bring a value into a range.\n\nBoth ends belong to it.",
    1,
    8,
)
FAILING = (
    TestCase(
        "tests/test_ranges.py::test_high",
        Outcome.FAILED,
        ">   assert clamp(12) == 10\nE   assert 12 == 10\nE    +  where",
    ),
    TestCase("tests/test_ranges.py::test_all[a b]", Outcome.FAILED, "NameError: name 'x' is not defined"),
)


def bug(before: str = RIGHT, after: str = WRONG, about: tuple[Definition, ...] = (CLAMP,)) -> Candidate:
    change = FileChange("shapes/ranges.py", before, after)
    return Candidate(TaskKind.BUG, "python", (change,), about, frozenset(), {"operator": "comparison"})


def feature(exported: bool = True) -> Candidate:
    changes = [FileChange("shapes/ranges.py", RIGHT, "")]
    if exported:
        line = "from shapes.ranges import clamp\n"
        changes.append(FileChange("shapes/__init__.py", f"{line}X = 1\n", "X = 1\n"))
    return Candidate(TaskKind.FEATURE, "python", tuple(changes), (CLAMP,), frozenset(), {})


def history(message: str) -> Candidate:
    subject, _, body = message.partition("\n")
    change = FileChange("shapes/ranges.py", RIGHT, WRONG)
    hidden = (FileChange("tests/test_ranges.py", "old\n", "new\n"),)
    return Candidate(TaskKind.HISTORY, "python", (change,), (), frozenset(), {"subject": subject, "body": body}, hidden)


def task(candidate: Candidate, text: str) -> Task:
    return Task("0" * 64, "1" * 64, candidate.kind, "python", text, candidate.changes, (FAILING[0].id,), ("t::k",))


def test_a_bug_report_says_what_is_documented_what_happens_and_how_to_see_it() -> None:
    text = statement(bug(), FAILING)
    assert text.startswith("# `clamp` does not do what it should\n")
    assert "Both ends belong to it." in text
    assert "`tests/test_ranges.py::test_high`: assert 12 == 10" in text
    assert "python -m pytest 'tests/test_ranges.py::test_all[a b]' tests/test_ranges.py::test_high" in text


def test_a_bug_report_does_not_hold_the_changed_line_nor_what_was_done_to_it() -> None:
    text = statement(bug(), FAILING)
    assert "if value" not in text
    assert "comparison" not in text


def test_a_signature_that_was_changed_is_left_out() -> None:
    text = statement(bug(after=RIGHT.replace("high=10", "high=11")), FAILING)
    assert "high=1" not in text
    assert "Bring a value into a range." in text


def test_a_failure_that_quotes_the_changed_line_is_named_without_what_it_says() -> None:
    case = TestCase("tests/test_ranges.py::test_high", Outcome.FAILED, "E   SyntaxError: if value >= high + 1:")
    assert "- `tests/test_ranges.py::test_high`\n" in statement(bug(), [case])


def test_a_feature_is_described_by_signature_and_docstring_and_by_who_exports_it() -> None:
    text = statement(feature(), FAILING)
    assert text.startswith("# Implement `clamp`\n")
    assert "def clamp(value, low=0, high=10)" in text
    assert "It is also to be had from `shapes/__init__.py`" in text
    assert "from shapes.ranges import clamp" not in text


def test_the_body_of_a_feature_is_not_told() -> None:
    text = statement(feature(exported=False), FAILING)
    documented = {
        *CLAMP.docstring.splitlines(),
        "def clamp(value, low=0, high=10):",
        '"""Bring a value into a range.',
        '"""',
    }
    body = [line for line in removed_lines(feature().changes) if line not in documented]
    assert [line for line in body if line in text] == []


def test_a_commit_is_told_by_its_message_without_what_leads_to_it() -> None:
    message = """\
Ranges hold their ends (#123)

Fixes #77. As in 1a2b3c4d5e, see https://example.org/pull/3
- keeps the ends
+    if value > high:
if value > high:
Signed-off-by: A <a@example.org>
"""
    text = statement(history(message), FAILING)
    assert text.startswith("# Ranges hold their ends\n")
    assert "- keeps the ends" in text
    for trace in ("123", "77", "1a2b3c", "example.org", "Signed", "if value"):
        assert trace not in text
    assert "come with the change" in text


def test_a_commit_is_told_with_the_documentation_of_what_it_touched() -> None:
    text = statement(replace(history("Ranges hold their ends"), about=(CLAMP,)), FAILING)
    assert "Both ends belong to it." in text


def test_a_docstring_is_not_indented_as_in_its_source() -> None:
    nested = replace(CLAMP, docstring="Bring it.\n\n        Both ends\n        belong to it.\n    ")
    assert "\n\nBoth ends\nbelong to it.\n```" in statement(bug(about=(nested,)), FAILING)


@pytest.mark.parametrize("message", ["", "\n\n", "Merge pull request #3 from a/b", "\x1b[31m\u202e"])
def test_a_commit_without_a_message_is_told_by_its_files(message: str) -> None:
    assert statement(history(message), FAILING).startswith("# A change to `shapes/ranges.py`\n")


def test_words_of_prose_are_no_hashes() -> None:
    assert message_without_traces("Defaced facades are 1234567 wide") == ("Defaced facades are 1234567 wide", "")


def test_many_failing_tests_are_counted_and_their_files_named() -> None:
    cases = [TestCase(f"tests/test_{i % 3}.py::test_{i:03}", Outcome.FAILED, "E  x") for i in range(200)]
    text = statement(bug(), cases)
    assert "200 tests fail" in text
    assert "- `tests/test_0.py::test_000` and 66 more of this file: x\n" in text
    assert "python -m pytest tests/test_0.py tests/test_1.py tests/test_2.py" in text


def test_failures_that_differ_are_listed_up_to_a_dozen() -> None:
    cases = [TestCase(f"tests/test_a.py::test_{i:03}", Outcome.FAILED, f"E  assert {i} == 0") for i in range(30)]
    text = statement(bug(), cases)
    assert "- `tests/test_a.py::test_011`: assert 11 == 0\n- and 18 more\n" in text


def test_what_a_repository_says_cannot_steer_a_terminal_or_close_its_block() -> None:
    nasty = Definition("a.py", "f", "function", "def f()", "red \x1b[31m \u202e```\nend\ud800", 1, 2)
    text = statement(bug(about=(nasty,)), FAILING)
    assert not set(text) & {"\x1b", "\u202e", "\ud800"}
    assert "````text\n" in text


def test_a_candidate_gives_the_same_text_whatever_the_order_of_its_tests() -> None:
    assert statement(bug(), FAILING) == statement(bug(), FAILING[::-1])


REWRITTEN = "# `clamp` lets values out\n\nCalling clamp with twelve gives twelve, where ten is expected.\n"


def test_a_model_may_write_the_prose_and_the_tests_stay() -> None:
    plain = statement(bug(), FAILING)
    written = rewrite(ScriptedModel([REWRITTEN]), plain, task(bug(), plain))
    assert written.startswith(REWRITTEN.strip())
    assert written.partition(EVIDENCE)[2] == plain.partition(EVIDENCE)[2]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("", id="nothing"),
        pytest.param("Here you are: clamp is broken, please mend it for me.", id="no title"),
        pytest.param("# A function lets values out\n\nIt gives twelve, where ten is expected of it.", id="no name"),
        pytest.param(REWRITTEN + "\n    if value > high:\n        return high_end_of(high)\n", id="tells"),
        pytest.param(Reply(REWRITTEN, finish="length"), id="cut"),
    ],
)
def test_the_plain_statement_stays_where_a_models_is_no_good(reply: str | Reply) -> None:
    plain = statement(bug(), FAILING)
    assert rewrite(ScriptedModel([reply]), plain, task(bug(), plain)) == plain
