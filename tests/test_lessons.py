"""Generation 0's solutions in the words of a model."""

import pytest

from ratchet.flywheel.lessons import edit_reply, install_lessons, recipe_commands, task_lessons
from ratchet.policies.model.replies import Problem, parse
from ratchet.records import ActionKind, Recipe, RecipeStep, Reply
from ratchet.task_records import FileChange, Task, TaskKind

OPENING = (
    RecipeStep(command="id dev >/dev/null 2>&1 || useradd --create-home dev"),
    RecipeStep(command="uv venv --quiet --seed --python 3.11 /opt/venv"),
)


def recipe(*steps):
    return Recipe((*OPENING, *steps))


def test_what_stands_in_files_is_said_in_the_command():
    commands = recipe_commands(
        recipe(
            RecipeStep(
                path="/opt/r.txt", content="pytest\nsimplejson>=3 # why\ntomli; python_version < '3.11'\n\n-e .\n"
            ),
            RecipeStep(path="/opt/c.txt", content="setuptools<80\n"),
            RecipeStep(command="uv pip install --no-progress -c /opt/c.txt -e '.[tests]' -r /opt/r.txt"),
        ),
        "3.11",
    )
    assert commands == ["uv pip install -e '.[tests]' pytest 'simplejson>=3'"]


def test_only_variables_that_a_model_lacks_are_said():
    step = RecipeStep(command="uv pip install -e .", env={"PATH": "/x", "SETUPTOOLS_SCM_PRETEND_VERSION": "1.0"})
    assert recipe_commands(recipe(step), "3.11") == ["SETUPTOOLS_SCM_PRETEND_VERSION=1.0 uv pip install -e ."]


def test_an_install_of_nothing_is_not_said():
    steps = (RecipeStep(path="/opt/r.txt", content="\n"), RecipeStep(command="uv pip install -r /opt/r.txt"))
    assert recipe_commands(recipe(*steps), "3.11") == []


@pytest.mark.parametrize("command", ["cat <<E >x\nhello\nE", "echo " + "x" * 500])
def test_a_recipe_with_a_step_that_is_no_short_command_gives_no_lesson(command):
    assert recipe_commands(recipe(RecipeStep(command=command)), "3.11") == []


def test_installs_are_said_in_one_command_and_in_two():
    class Base:
        pythons = ("3.11",)

    class Environment:
        base = Base()
        recipe = Recipe(
            (*OPENING, RecipeStep(command="uv pip install -e . pytest"), RecipeStep(command="uv pip install hatchling"))
        )

    one, two = install_lessons(Environment())
    assert one == ["```sh\nuv pip install -e . pytest hatchling\n```", "```submit\n```"]
    assert [reply.split("\n")[1] for reply in two[:2]] == ["uv pip install -e . pytest", "uv pip install hatchling"]


# --------------------------------------------------------------------------- edits

RIGHT = (
    "def f(a):\n    if a:\n        return 1\n    return 2\n\n\ndef g(a):\n    if a:\n        return 1\n    return 3\n"
)


def applied(reply, wrong):
    action = parse(Reply(reply), frozenset({ActionKind.EDIT}), submit_blocks=("submit",), user="dev")
    assert not isinstance(action, Problem)
    (edit,) = action.edits
    assert wrong.count(edit.search) == 1
    return wrong.replace(edit.search, edit.replace)


@pytest.mark.parametrize(
    "wrong",
    [
        RIGHT.replace("return 3", "return 4"),
        RIGHT.replace("    if a:\n        return 1\n    return 3", "    if not a:\n        return 1\n    return 3"),
        RIGHT.replace("    return 2\n", ""),  # a line is missing
        RIGHT.replace("    return 2\n", "    a = 2\n    return 2\n"),  # a line too many
        RIGHT.replace("return 1", "return 0"),  # both functions
    ],
)
@pytest.mark.parametrize("around", [0, 1, 50])
def test_an_edit_makes_the_right_text_of_the_wrong_one(wrong, around):
    assert applied(edit_reply("m.py", wrong, RIGHT, around=around), wrong) == RIGHT


def test_an_edit_is_no_longer_than_it_has_to_be():
    reply = edit_reply("m.py", RIGHT.replace("return 3", "return 4"), RIGHT, around=0)
    assert "SEARCH\n    return 4\n=======\n    return 3\n>>>>>>>" in reply


def test_nothing_to_change_is_no_edit():
    assert edit_reply("m.py", RIGHT, RIGHT, around=0) == ""


WRONG = RIGHT.replace("return 3", "return 4")


def bug(statement, wrong=WRONG):
    return Task(
        id="t",
        environment="e",
        kind=TaskKind.BUG,
        language="python",
        statement=statement,
        changes=(FileChange("m.py", RIGHT, wrong),),
        fail_to_pass=("t.py::t",),
        pass_to_pass=(),
    )


def test_a_task_whose_code_is_shown_has_two_lessons():
    narrow, wide = task_lessons(bug("# x\n\n`g` (function) in `m.py`\n"))
    assert len(narrow[0]) < len(wide[0])


@pytest.mark.parametrize("statement", ["nothing is named", "`h` (function) in `m.py`", "`g` (function) in `other.py`"])
def test_a_task_that_names_no_code_has_none(statement):
    assert task_lessons(bug(statement)) == []


def test_code_that_is_no_python_has_none():
    assert task_lessons(bug("`g` (function) in `m.py`", wrong="def g(:\n")) == []
