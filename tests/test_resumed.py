"""A model whose earlier replies are played again."""

from __future__ import annotations

import pytest

from ratchet.errors import ContextOverflowError
from ratchet.policies.budget import Meter
from ratchet.policies.model.resumed import ResumedModel
from ratchet.policies.scripted import ScriptedModel
from ratchet.records import Exchange, Message

LONG, SHORT, NEXT = (Message("user", text) for text in ("too long", "short", "next"))


def record(*replies: str | ContextOverflowError, prompts: tuple[tuple[Message, ...], ...]) -> list[Exchange]:
    kept: list[Exchange] = []
    model = ResumedModel(ScriptedModel(replies), [], kept.append, Meter())
    for prompt in prompts:
        try:
            model.reply(prompt, stage="s")
        except ContextOverflowError:
            continue
    return kept


def test_what_was_answered_is_not_asked_again() -> None:
    kept = record("one", "two", prompts=((SHORT,), (SHORT, NEXT)))
    model = ScriptedModel(["three"])
    resumed = ResumedModel(model, kept, kept.append, Meter())
    prompts = ((SHORT,), (SHORT, NEXT), (SHORT, NEXT, NEXT))
    assert [resumed.reply(prompt, stage="s").text for prompt in prompts] == ["one", "two", "three"]
    assert model.prompts == [prompts[2]]
    assert len(kept) == 3


def test_a_prompt_that_was_too_long_does_not_spoil_the_record() -> None:
    overflow = ContextOverflowError("too long")
    kept = record(overflow, "one", "two", prompts=((LONG,), (SHORT,), (SHORT, NEXT)))
    model = ScriptedModel([overflow])
    resumed = ResumedModel(model, kept, kept.append, Meter())
    with pytest.raises(ContextOverflowError):
        resumed.reply((LONG,), stage="s")
    assert [resumed.reply(prompt, stage="s").text for prompt in ((SHORT,), (SHORT, NEXT))] == ["one", "two"]


def test_replies_that_are_of_no_use_any_more_stay_counted() -> None:
    kept = record("one", "two", prompts=((SHORT,), (SHORT, NEXT)))
    meter = Meter()
    resumed = ResumedModel(ScriptedModel(["other"], meter=meter), kept, kept.append, meter)
    assert resumed.reply((LONG,), stage="s").text == "other"
    assert meter.usage["s"].calls == 3
