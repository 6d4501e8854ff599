"""A model whose earlier replies are played again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.errors import ContextOverflowError
from ratchet.policies.budget import Meter
from ratchet.policies.model.resumed import ResumedModel
from ratchet.policies.scripted import ScriptedModel
from ratchet.records import Action, ActionKind, Exchange, Message, Step
from ratchet.trajectories import Header, TrajectoryLog

LONG, SHORT, NEXT, OTHER = (Message("user", text) for text in ("too long", "short", "next", "other"))


def resumed(model: ScriptedModel, kept: list[Exchange], meter: Meter | None = None) -> ResumedModel:
    return ResumedModel(model, tuple(kept), kept.append, meter or Meter(), "s")


def record(*replies: str | ContextOverflowError, prompts: tuple[tuple[Message, ...], ...]) -> list[Exchange]:
    kept: list[Exchange] = []
    model = resumed(ScriptedModel(replies), kept)
    for prompt in prompts:
        try:
            model.reply(prompt, stage="s")
        except ContextOverflowError:
            continue
    return kept


def test_what_was_answered_is_not_asked_again() -> None:
    kept = record("one", "two", prompts=((SHORT,), (SHORT, NEXT)))
    model = ScriptedModel(["three"])
    again = resumed(model, kept)
    prompts = ((SHORT,), (SHORT, NEXT), (SHORT, NEXT, NEXT))
    assert [again.reply(prompt, stage="s").text for prompt in prompts] == ["one", "two", "three"]
    assert model.prompts == [prompts[2]]
    assert len(kept) == 3


def test_a_prompt_that_was_too_long_does_not_spoil_the_record() -> None:
    overflow = ContextOverflowError("too long")
    kept = record(overflow, "one", "two", prompts=((LONG,), (SHORT,), (SHORT, NEXT)))
    again = resumed(ScriptedModel([overflow]), kept)
    with pytest.raises(ContextOverflowError):
        again.reply((LONG,), stage="s")
    assert [again.reply(prompt, stage="s").text for prompt in ((SHORT,), (SHORT, NEXT))] == ["one", "two"]


def test_answers_are_found_by_their_prompt_in_any_order_and_each_is_given_once() -> None:
    """As a judge is asked, where some of what it was asked is not asked any more."""
    prompts = tuple((SHORT, question) for question in (LONG, NEXT, OTHER, NEXT))
    kept = record("long", "next", "other", "next again", prompts=prompts)
    model = ScriptedModel(["a third time"])
    again = resumed(model, kept)
    asked = [OTHER, NEXT, NEXT, NEXT, LONG]
    said = [again.reply((SHORT, question), stage="s").text for question in asked]
    assert said == ["other", "next", "next again", "a third time", "long"]
    assert model.prompts == [(SHORT, NEXT)]
    third = resumed(ScriptedModel([]), kept)
    assert [third.reply((SHORT, NEXT), stage="s").text for _ in range(3)] == ["next", "next again", "a third time"]


def test_all_that_was_answered_is_counted_once_whether_it_is_of_use_or_not() -> None:
    kept = record("one", "two", prompts=((SHORT,), (SHORT, NEXT)))
    meter = Meter()
    again = resumed(ScriptedModel(["other"], meter=meter), kept, meter)
    assert meter.usage["s"].calls == 2
    assert again.reply((LONG,), stage="s").text == "other"
    assert again.reply((SHORT,), stage="s").text == "one"
    assert meter.usage["s"].calls == 3


def test_what_another_course_of_things_cut_off_is_counted_by_every_later_run(tmp_path: Path) -> None:
    header, path = Header("builder", "m"), tmp_path / "builder.jsonl"

    def run(replies: list[str], outputs: list[str]) -> tuple[ScriptedModel, Meter]:
        """A conversation in which each prompt holds the outputs so far."""
        meter = Meter()
        model = ScriptedModel(replies, meter=meter)
        with TrajectoryLog(path, header) as log:
            asked = ResumedModel(model, log.recorded.calls, log.exchange, meter, "s")
            prompt: tuple[Message, ...] = (SHORT,)
            for number, output in enumerate(outputs):
                reply, before = asked.reply(prompt, stage="s"), prompt
                prompt = (*prompt, Message("assistant", reply.text), Message("user", output))
                done = Step(Action(ActionKind.NONE, exchanges=(Exchange("m", 0, before, reply),)), None)
                if log.recorded.steps[number : number + 1] != (done,) or output == "differs":
                    log.back_to(number)
                    log.step(done)
        return model, meter

    run(["a", "b", "c", "d"], ["1", "2", "3", "4"])
    model, meter = run(["B", "C"], ["differs", "2", "3"])
    assert len(model.prompts) == 2, "the first question is the same"
    assert meter.usage["s"].calls == 6
    model, meter = run([], ["differs", "2", "3"])
    assert not model.prompts
    assert meter.usage["s"].calls == 6
    model, meter = run([], ["1", "2", "3", "4"])
    assert not model.prompts, "the first course's answers are still there"
    assert meter.usage["s"].calls == 6
