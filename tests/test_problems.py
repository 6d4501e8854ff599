"""Tries at problems, in real sandboxes, by a model whose words are given."""

from dataclasses import replace

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("torch")

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import ModelServerError, UsageError
from ratchet.flywheel.lessons import ScriptedSampler, task_lessons
from ratchet.generation_records import Problem, ProblemKind
from ratchet.policies.local.templates import read_tokens
from ratchet.problems import Player, TryLimits, brief_solver, set_up_actions
from ratchet.records import Action, ActionKind, Exchange, Reply, Step, Trajectory, content_id
from ratchet.task_records import FailureKind
from sample_project import sample_environment, sample_task
from tiny_model import tiny_checkpoint

LIMITS = TryLimits(reply_tokens=1500, context_tokens=9000)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return read_tokens(tiny_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def workshop(home, base):
    with Workshop.open(home) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def task(workshop):
    environment = sample_environment(workshop)
    workshop.store.put("environment", environment)
    statement = "# It does too little\n\n`discount` (function) in `inventory/prices.py`\n\n## What fails\n\nit does\n"
    task = replace(sample_task(environment), statement=statement)
    task = replace(task, id=content_id([task.id, statement]))
    workshop.store.put("task", task)
    return task


@pytest.fixture
def played(workshop, task, tokens, tmp_path):
    """Plays replies, by sample; each test has its own name, and so its own tries."""
    problem = Problem(ProblemKind.TASK, task.id, "inventory")
    calls = []

    def play(replies, name=str(tmp_path)):
        def make(_problem, sample):
            calls.append(sample)
            if isinstance(replies[sample], Exception):
                raise replies[sample]
            return LIMITS.model(ScriptedSampler(tokens, replies[sample]), tokens, "script", 1.0)

        player = Player(workshop, LIMITS, len(replies))
        found = sorted(player.play([problem], len(replies), make, name=name), key=lambda each: each.sample)
        return found, calls

    return play


def test_the_right_edit_passes_and_others_do_not(played, task):
    right = task_lessons(task)[0]
    no_edit = ["I do not know."]
    wrong = [right[0].replace(">= 100", "> 101")]
    (first, second, third), _ = played([right, no_edit, wrong])
    assert first.passed
    assert first.claimed
    assert first.reward == 1
    assert not second.passed
    assert not second.claimed
    assert second.reward == 0
    assert third.claimed
    assert not third.passed
    assert [each.set_up for each in (first, second, third)] == [0, 0, 0]


def test_the_tokens_are_those_that_were_sampled(played, task, tokens):
    right = task_lessons(task)[0]
    ((sample,), _) = played([right])
    said = [token for token, mine in zip(sample.trace.ids, sample.trace.mask, strict=True) if mine]
    assert said == [*tokens.encode(right[0]), tokens.end]
    assert len(sample.trace.logprobs) == len(sample.trace.ids)
    assert sample.traces == 1


def test_a_try_that_has_ended_is_not_played_again(played, task):
    right = task_lessons(task)[0]
    once, calls = played([right])
    again, calls = played([right])
    assert calls == [0]
    assert again[0].reward == once[0].reward
    assert again[0].trace == once[0].trace


def test_a_server_that_is_down_is_no_failure_of_the_policy(played):
    ((sample,), calls) = played([ModelServerError("down")])
    assert sample.reward is None
    assert sample.failure is FailureKind.INFRASTRUCTURE
    assert len(calls) > 1


def test_a_task_without_code_to_show_is_refused(task, tokens):
    model = LIMITS.model(ScriptedSampler(tokens, []), tokens, "script", 1.0)
    with pytest.raises(UsageError, match="names no single short function"):
        brief_solver(model, replace(task, statement="mend it"), LIMITS)


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        ("pip install x", 1),
        ("python -m pip install -e .", 1),
        ("uv pip install x", 1),
        ("cd a && uv sync", 1),
        ("apt-get install -y gcc", 1),
        ("python -m pytest", 0),
        ("cat install.txt", 0),
        ("grep pip install.md", 0),
    ],
)
def test_commands_that_make_an_environment_are_counted(command, counts):
    exchange = Exchange("m", 0, (), Reply("x"), "")
    action = Action(ActionKind.RUN, command=command, exchanges=(exchange,))
    assert set_up_actions(Trajectory((Step(action, None),), "")) == counts
    assert set_up_actions(Trajectory((Step(replace(action, exchanges=()), None),), "")) == 0
