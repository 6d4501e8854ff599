"""From what models write to actions: the text protocol, native tool calls, and what is said of a wrong reply."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.policies.model.prompts import RIGHT_FORMS
from ratchet.policies.model.replies import Problem, parse, tools_for
from ratchet.records import Action, ActionKind, Edit, Reason, Reply, ToolCall

ALL = frozenset(ActionKind) - {ActionKind.NONE}


def action(text: str, allowed: frozenset[ActionKind] = ALL, **options: object) -> Action:
    parsed = parse(Reply(text), allowed, **options)  # type: ignore[arg-type]
    assert isinstance(parsed, Action), parsed
    return parsed


def problem(reply: str | Reply, allowed: frozenset[ActionKind] = ALL) -> str:
    parsed = parse(Reply(reply) if isinstance(reply, str) else reply, allowed)
    assert isinstance(parsed, Problem), parsed
    return parsed.text


COMMANDS = {
    "plain": ("I look around first.\n\n```sh\nls -la\n```\n", "ls -la"),
    "bash": ("```bash\npip install -e .\npytest -q\n```", "pip install -e .\npytest -q"),
    "session": ("```console\n$ pip install flask\nCollecting flask\n$ pytest\n```", "pip install flask\npytest"),
    "continued session": ("```sh\n$ apt-get install -y \\\n  gcc\n```", "apt-get install -y \\\n  gcc"),
    "no language": ("To install:\n```\npip install flask\n```\nThat is all.", "pip install flask"),
    "after text": ("Let us run: ```sh\nls\n```", "ls"),
    "one line": ("Run ```sh pip install flask```", "pip install flask"),
    "closed after text": ("```sh\nls```\nThen I will see.", "ls"),
    "not closed": ("```sh\nls\n", "ls"),
    "next block opened at once": ("```sh\nls\n```sh\npwd\n```", "ls"),
    "tildes": ("~~~sh\necho '```'\n~~~", "echo '```'"),
    "in a list": ("1. Install:\n\n   ```bash\n   pip install x\n     --quiet\n   ```", "pip install x\n  --quiet"),
    "in a list, on its line": ("1. ```sh\n   for i in 1; do\n     ls\n   done\n   ```", "for i in 1; do\n  ls\ndone"),
    "windows line ends": ("```sh\r\nls\r\npwd\r\n```\r\n", "ls\npwd"),
    "capitals": ("```SH\nls\n```", "ls"),
    "a list of other blocks first": ('```json\n{"a": 1}\n```\n```python\nx\n```\n```sh\nls\n```', "ls"),
    "thoughts left in": ("<think>\nMaybe ```sh\nrm -rf /\n``` ?\n</think>\n\n```sh\nls\n```", "ls"),
    "thoughts without their start": ("hm ```sh\nrm x\n```\n</think>```sh\nls\n```", "ls"),
    "a longer fence": ("````sh\ncat > a.md <<E\n```\nx\n```\nE\n````", "cat > a.md <<E\n```\nx\n```\nE"),
    "markdown in a here-document": (
        "```sh\ncat > a.md <<'EOF'\n# A\n```python\nx\n```\nEOF\n```\nDone.",
        "cat > a.md <<'EOF'\n# A\n```python\nx\n```\nEOF",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_found_however_they_are_fenced(name: str) -> None:
    text, command = COMMANDS[name]
    found = action(text)
    assert (found.kind, found.command) == (ActionKind.RUN, command)


def test_a_command_may_name_its_user_and_time() -> None:
    found = action("```sh user=dev timeout=600\npytest\n```")
    assert (found.user, found.timeout_s, found.command) == ("dev", 600.0, "pytest")
    assert action("```sh\nls\n```", user="dev").user == "dev"


def test_a_file_is_written_with_what_it_holds() -> None:
    found = action("```write tests/a.cfg\n[a]\n\n  b = 1\n```")
    assert (found.kind, found.path, found.content) == (ActionKind.WRITE, "/workspace/tests/a.cfg", "[a]\n\n  b = 1\n")
    assert found.mode == 0o644
    assert action("```write /a/__init__.py\n```").content == ""


def test_a_script_that_is_written_can_be_executed() -> None:
    assert action("```write /opt/ratchet/start\n#!/bin/sh\nredis-server\n```").mode == 0o755


def test_a_file_may_hold_fences() -> None:
    assert action("```write a.md\n# A\n```python\nx\n```\nend\n```\nok").content == "# A\n```python\nx\n```\nend\n"


EDIT = """\
```edit setup.cfg
<<<<<<< SEARCH
a = 1

b = 2
=======
a = 2
>>>>>>> REPLACE
<<<<<<< SEARCH
gone
=======
>>>>>>> REPLACE
```"""


def test_edits_keep_their_lines_and_an_empty_replacement_takes_the_line_away() -> None:
    found = action(EDIT)
    assert found.kind is ActionKind.EDIT
    assert found.edits == (Edit("a = 1\n\nb = 2", "a = 2"), Edit("gone\n", ""))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("```read setup.py 10-60\n```", ("/workspace/setup.py", 10, 60)),
        ("```read setup.py```", ("/workspace/setup.py", 1, 0)),
        ("```read\nsetup.py\n```", ("/workspace/setup.py", 1, 0)),
        ("```read /etc/passwd lines 3-4\n```", ("/etc/passwd", 3, 4)),
        ("```read a/b.py:7-9\n```", ("/workspace/a/b.py", 7, 9)),
        ("```read 'a b.py' 5-\n```", ("/workspace/a b.py", 5, 0)),
        ("```read ../workspace/./x 1 2\n```", ("/workspace/x", 1, 2)),
    ],
)
def test_lines_are_read(text: str, lines: tuple[str, int, int]) -> None:
    found = action(text)
    assert found.kind is ActionKind.READ
    assert (found.path, found.first, found.last) == lines


def test_what_was_done_can_be_undone() -> None:
    undone = [action(f"```rollback\n{body}\n```").undo for body in ("", "3", "all")]
    assert undone == [1, 3, 0]


def test_a_submission_may_say_that_it_cannot_be_done() -> None:
    assert action("All of it works.\n```submit\n```").ok
    found = action("```submit\ncannot: it needs a GPU\n```")
    assert (found.ok, found.reason, found.detail) == (False, Reason.POLICY_GAVE_UP, "it needs a GPU")


def test_other_blocks_can_submit_the_whole_reply() -> None:
    text = "First:\n```sh\nls\n```\n```goal\ncommand: pytest\n```\n```goal\ncommand: ls\n```"
    found = action(text, submit_blocks=("goal",))
    assert (found.kind, found.content) == (ActionKind.SUBMIT, text)
    cut = parse(Reply("```goal\ncommand: py", finish="length"), ALL, submit_blocks=("goal",))
    assert isinstance(cut, Problem)


def test_of_several_actions_the_first_is_done_and_the_model_is_told() -> None:
    found = action("I install it, then test.\n```sh\npip install .\n```\n```sh\npytest\n```\n```submit\n```")
    assert found.command == "pip install ."
    assert found.detail == "Only the first of your 3 blocks was done."
    assert found.note.startswith("I install it, then test.")


def test_a_long_thought_is_cut() -> None:
    assert len(action("so " * 10_000 + "\n```sh\nls\n```").note) == 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I will install flask.", "There is no block"),
        ("", "There is no block"),
        ("pip install flask```", "There is no block"),
        ("```python\nimport flask\n```", "python3 - <<'EOF'"),
        ("```json\n{}\n```", "```json is none"),
        ("```\nls\n```\nprints\n```\na b\n```", "no action"),
        ("```sh\n\n```", "empty"),
        ("```sh timeout=soon\nls\n```", "'soon'"),
        ("```sh user=$(id)\nls\n```", "'$(id)'"),
        ("```sh\nls \0\n```", "NUL"),
        ("```write\nx = 1\n```", "There is no path"),
        ("```write ~/x\n1\n```", "'~/x'"),
        ("```write /a\0b\n1\n```", "no path that can be used"),
        ("```edit a.py\nx = 1\n```", "no complete SEARCH"),
        ("```edit a.py\n<<<<<<< SEARCH\nx\n=======\ny\n```", "no complete SEARCH"),
        ("```edit a.py\n<<<<<<< SEARCH\n=======\ny\n>>>>>>> REPLACE\n```", "is empty"),
        ("```read\na\nb\n```", "one file at a time"),
        ("```rollback\neverything\n```", "'everything'"),
        ("x" * 300_000, "too long"),
    ],
)
def test_a_wrong_reply_gets_one_correction(text: str, said: str) -> None:
    assert said in problem(text)


def test_a_correction_shows_what_would_be_right() -> None:
    assert RIGHT_FORMS[ActionKind.EDIT] in problem("```edit a.py\nx = 1\n```")
    assert RIGHT_FORMS[ActionKind.RUN] in problem("hello")


def test_a_correction_is_short_whatever_the_reply() -> None:
    assert len(problem("```sh user=" + "x" * 100_000 + "\nls\n```")) < 400
    assert len(problem("```" + "x" * 100_000 + "\nls\n```")) < 400


def test_only_allowed_actions_are_taken() -> None:
    allowed = frozenset({ActionKind.READ, ActionKind.SUBMIT})
    assert "not possible here" in problem("```write /a\nx\n```", allowed)
    assert "no action" in problem("```\nls\n```", allowed)


def test_a_reply_that_was_cut_is_not_half_done() -> None:
    assert "cut off" in problem(Reply("```write /a\nhalf", finish="length"))
    whole = parse(Reply("```sh\nls\n```\n```sh\nrm -r", finish="length"), ALL)
    assert isinstance(whole, Action)
    assert whole.command == "ls"


@pytest.mark.parametrize(
    "text",
    [
        "`" * 190_000,
        "`x" * 90_000,
        "~~~\n" * 40_000,
        "a ```b\nx```\n" * 15_000,
        "a ```sh\n<<x```\nx```\n" * 9_000,
        "```sh\n" + "x\n" * 50_000 + "<<\n" + "x```\n" * 15_000,
        "```edit a\n" + "<<<<<<< SEARCH\n=======\n" * 8_000,
        "```read " + "1 " * 90_000,
        "```write " + "/.." * 60_000 + "\n```",
    ],
)
def test_hostile_replies_take_no_time(text: str) -> None:
    start = time.process_time()
    parse(Reply(text), ALL)
    assert time.process_time() - start < 3


MARKS = (
    "``` ```` ~~~ sh write edit read rollback submit goal $ << <<<<<<< ======= >>>>>>> SEARCH REPLACE <think> </think>"
)
PIECES = st.sampled_from([*MARKS.split(), "\n", "\r\n", " ", "user=", "timeout=9", "\0", "\ud800", "٣-٤"])
REPLIES = st.builds(
    Reply,
    text=st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join),
    finish=st.sampled_from(["stop", "length"]),
    tool_calls=st.lists(
        st.builds(
            ToolCall,
            id=st.text(max_size=3),
            name=st.sampled_from(["run_command", "edit_file", "read_file", "rollback", "submit", "x"]),
            arguments=st.text(max_size=20)
            | st.dictionaries(
                st.sampled_from(["command", "path", "edits", "first", "undo", "ok", "user", "text"]),
                st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2),
            ).map(json.dumps),
        ),
        max_size=1,
    ).map(tuple),
)


@settings(deadline=None)
@given(REPLIES, st.sampled_from([("submit",), ("goal",)]))
def test_whatever_is_written_is_an_action_that_can_be_carried_out_or_a_problem(
    reply: Reply, submit_blocks: tuple[str, ...]
) -> None:
    parsed = parse(reply, ALL, submit_blocks=submit_blocks)
    if isinstance(parsed, Problem):
        assert parsed.text.strip()
    else:
        assert "\0" not in parsed.command + parsed.path
        (parsed.command + parsed.path + parsed.content + parsed.detail).encode()
        assert parsed.path.startswith("/") or not parsed.path


# --------------------------------------------------------------------------- native tool calls


def call(name: str, arguments: str | dict[str, object], text: str = "") -> Reply:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Reply(text, tool_calls=(ToolCall("c1", name, written),), finish="tool_calls")


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("run_command", {"command": "ls", "user": "dev", "timeout_s": 60}, "```sh user=dev timeout=60\nls\n```"),
        ("write_file", {"path": "a", "content": "x\n"}, "```write a\nx\n```"),
        (
            "edit_file",
            {"path": "a", "edits": [{"search": "x", "replace": "y"}]},
            "```edit a\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```",
        ),
        ("read_file", {"path": "a", "first": 2, "last": 9}, "```read a 2-9\n```"),
        ("rollback", {"undo": 2}, "```rollback\n2\n```"),
        ("rollback", "", "```rollback\n```"),
        ("submit", {"ok": True}, "```submit\n```"),
        ("submit", {"ok": False, "text": "no GPU"}, "```submit\ncannot: no GPU\n```"),
    ],
)
def test_a_tool_call_is_the_same_action_as_its_block(name: str, arguments: dict[str, object] | str, text: str) -> None:
    assert parse(call(name, arguments), ALL) == action(text)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("bash", {"command": "ls"}, "no tool 'bash'"),
        ("run_command", '{"command": "ls', "no JSON object"),
        ("run_command", '["ls"]', "no JSON object"),
        ("run_command", "[" * 100_000, "no JSON object"),
        ("run_command", {}, "command has to be a string, and is missing"),
        ("run_command", {"command": ["ls"]}, "command has to be a string"),
        ("run_command", {"command": "ls\0"}, "NUL"),
        ("edit_file", {"path": "a", "edits": "x"}, "edits has to be a list"),
        ("read_file", {"path": "a", "first": "one"}, "first has to be a whole number"),
        ("submit", {"ok": "yes"}, "ok has to be true or false"),
    ],
)
def test_a_wrong_tool_call_gets_one_correction(name: str, arguments: dict[str, object] | str, said: str) -> None:
    assert said in problem(call(name, arguments))


def test_tools_are_offered_for_what_is_allowed() -> None:
    offered = tools_for(frozenset({ActionKind.READ, ActionKind.RUN, ActionKind.SUBMIT}))
    assert [tool["function"]["name"] for tool in offered] == ["run_command", "read_file", "submit"]  # type: ignore[index]
    assert "no tool" in problem(call("write_file", {"path": "a", "content": ""}), frozenset({ActionKind.RUN}))
