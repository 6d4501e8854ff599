"""What a turn is made of, and what of it is on disk."""

from dataclasses import dataclass

import pytest

from ratchet.errors import UsageError
from ratchet.flywheel.configuration import parse
from ratchet.flywheel.ledger import Ledger
from ratchet.store import Store

WHOLE = """
name = "first"
base_model = "smollm2-135m-instruct"
[sources]
train = ["pypi:iniconfig", "pypi:iniconfig"]
held_out = ["pypi:pluggy"]
"""


def test_what_is_not_said_has_a_default():
    config = parse(WHOLE + "[reinforce]\nsteps = 3\nlearning_rate = 1\n[tasks]\nkinds = ['bug', 'feature']\n", "here")
    assert config.train == ("pypi:iniconfig",)
    assert config.reinforce.steps == 3
    assert config.reinforce.learning_rate == 1.0
    assert config.tasks.kinds == ("bug", "feature")
    assert config.warm_start.epochs == 3
    assert config.id == parse(config.text, "elsewhere").id
    assert config.id != parse(WHOLE, "here").id


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "no TOML"),
        ("name = 'x'", "base_model is missing"),
        (WHOLE.replace("first", "a/b"), "is no name"),
        (WHOLE.replace("pluggy", "iniconfig"), "both train and held_out"),
        (WHOLE.replace("[sources]", "[source]"), "there is no source"),
        (WHOLE.replace('["pypi:pluggy"]', '"pypi:pluggy"'), "list of sources"),
        (WHOLE + "[tasks]\nkinds = ['bugs']", "no kind of task bugs"),
        (WHOLE + "[tasks]\neach = -1", "whole number"),
        (WHOLE + "[trial]\nalso = ['me']", "knows no me"),
        (WHOLE + "[reinforce]\nsamples = 1", "samples is 1"),
        ("seed = true\n" + WHOLE, "seed has to be"),
        ("install = false\n" + WHOLE + "[tasks]\neach = 0", "nothing to learn"),
        ("tasks = 3\n" + WHOLE, "has to be a table"),
    ],
)
def test_what_makes_no_sense_is_said_with_its_place(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        parse(text, "turn.toml")
    assert "turn.toml" in str(caught.value)


@dataclass(frozen=True)
class Result:
    number: int


def test_a_stage_that_is_done_is_not_done_again(tmp_path):
    calls = []

    def do():
        calls.append(1)
        return Result(7)

    assert Ledger(Store(tmp_path), "t").stage("install", Result, do) == Result(7)
    again = Ledger(Store(tmp_path), "t")
    assert again.is_done("install")
    assert again.stage("install", Result, do) == Result(7)
    assert again.seconds.keys() == {"install"}
    assert len(calls) == 1
    assert not Ledger(Store(tmp_path), "other").is_done("install")


def test_a_stage_that_broke_is_done_again(tmp_path):
    ledger = Ledger(Store(tmp_path), "t")

    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.stage("tasks", Result, fails)
    assert not ledger.is_done("tasks")
    assert ledger.stage("tasks", Result, lambda: Result(1)) == Result(1)
