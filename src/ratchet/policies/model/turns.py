"""A policy that is a conversation with a model: one action in each reply."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ratchet.errors import BudgetSpentError, ContextOverflowError
from ratchet.policies.model.checked import shortened
from ratchet.policies.model.conversation import Conversation, delta, shown
from ratchet.policies.model.replies import Problem, parse, tools_for
from ratchet.protocols import Model
from ratchet.records import Action, ActionKind, CommandResult, Exchange, Message, Observation, Reason, Reply, content_id

_MOST_BAD_REPLIES = 3  # in a row
_TOLD_OF_CIRCLES = 2  # the same action with the same result so often, with nothing new done in between
_MOST_CIRCLES = 4
_MOST_REPEATS = 8  # of the same action, ending in the same way with other output

_STEPS_TOLD_BELOW = 6

# What differs from one run of the same command to the next.
_VARYING = re.compile(r"\b\d{1,9}(?:\.\d{1,9})? ?(?:[mµn]?s|secs?|seconds?|[kMG]i?B(?:/s)?)\b|\b0x[0-9a-fA-F]{1,16}\b")

_MARKS = {ActionKind.READ: "file", ActionKind.SEARCH: "matches"}

# Commands that only change the shell that ends with them.
_LASTS_NOT = re.compile(r"\s*(?:cd|export|source|\.)\s[^;&|\n]*")


class ModelPolicy:
    """A `Policy`: each action is the first in a reply of `model`, which sees the results of its own actions only.

    A reply that is no action becomes a NONE, with the correction as `detail`; after three in a row it submits
    BAD_REPLIES. The same action with the same result is remarked upon the second time, and the fourth time it submits
    GOING_IN_CIRCLES; a spent budget is submitted too. Given the same replies and observations it asks the same.

    `stage` is what the calls are counted for. `user` and `env` are what commands get where the reply names nobody.
    `submit_blocks`, `allowed`: see `replies.parse`. `tools` are offered to models that use tools; None means those of
    the allowed actions. `most_shown` bounds what is shown of one output, in characters; None: an eighth of the context,
    at most 10,000. `then` follows each result: what to do now, which small models otherwise lose sight of.

    Raises `ModelServerError` as the model does, and `ContextOverflowError` where system and task alone are too long.
    """

    def __init__(
        self,
        model: Model,
        *,
        system: str,
        task: str,
        stage: str,
        allowed: frozenset[ActionKind],
        user: str = "root",
        env: Mapping[str, str] = MappingProxyType({}),
        submit_blocks: Sequence[str] = ("submit",),
        tools: Sequence[Mapping[str, object]] | None = None,
        timeout_s: float | None = None,
        reply_tokens: int = 1024,
        most_shown: int | None = None,
        then: str = "",
    ) -> None:
        self._model = model
        self._stage = stage
        self._allowed = allowed
        self._user = user
        self._env = dict(env)
        self._submit_blocks = tuple(submit_blocks)
        self._tools = () if not model.uses_tools else tools_for(allowed) if tools is None else tuple(tools)
        self._timeout_s = timeout_s
        self._reply_tokens = min(reply_tokens, model.context_tokens // 3)
        self._conversation = Conversation(
            system, task, context_tokens=model.context_tokens, reply_tokens=self._reply_tokens
        )
        self._most_shown = most_shown or max(1000, min(10_000, self._conversation.room_characters // 8))
        self._prompt: tuple[Message, ...] = ()
        self._last: Action | None = None
        self._call = ""  # the tool call that the next result answers
        self._told: list[str] = []
        self._then = then
        self._bad_replies = 0
        self._circles = _Circles()

    def tell(self, text: str) -> None:
        """Put `text` before the result that the model sees next."""
        self._told.append(text)

    def act(self, observation: Observation) -> Action:
        text = self._observed(observation)
        if text:
            self._conversation.add_result(text, self._call)
        if self._circles.closed:
            detail = f"the same action had the same result {self._circles.repeats} times: {_named(self._last)}"
            return self._stop(Reason.GOING_IN_CIRCLES, detail)
        previous = self._prompt
        try:
            reply = self._ask()
        except BudgetSpentError as error:
            return self._stop(Reason.BUDGET_SPENT, error.what)
        parsed = parse(reply, self._allowed, submit_blocks=self._submit_blocks, user=self._user)
        problem = parsed.text if isinstance(parsed, Problem) else ""
        action = self._correction(problem) if isinstance(parsed, Problem) else self._completed(parsed)
        exchange = Exchange(self._model.name, *delta(previous, self._prompt), reply, problem)
        self._call = self._conversation.add_reply(reply, _named(action))
        self._last = replace(action, exchanges=(exchange,))
        return self._last

    def _ask(self) -> Reply:
        while True:
            self._prompt = self._conversation.prompt()
            try:
                return self._model.reply(
                    self._prompt, stage=self._stage, tools=self._tools, max_tokens=self._reply_tokens
                )
            except ContextOverflowError as error:
                self._conversation.overflowed(error)

    # ------------------------------------------------------------------ what the model is told

    def _observed(self, observation: Observation) -> str:
        parts = self._told
        self._told = []
        last, result = self._last, observation.result
        if last is None or last.kind is ActionKind.SUBMIT:
            if result is not None:
                parts.append(shown(result, self._most_shown))
            elif last is not None and not parts:
                parts.append("That was not accepted.")
        elif last.kind is ActionKind.NONE:
            parts.append(last.detail)
        else:
            text = _outcome(last, result, self._most_shown)
            self._circles.add(last, result, text, observation.changed)
            parts += [last.detail, text, *_advice(last, result), self._then]
            if self._circles.repeats >= _TOLD_OF_CIRCLES:
                parts.append(
                    f"You did exactly this {self._circles.repeats} times, with the same result. Do something else."
                )
        if last is not None and observation.steps_left < _STEPS_TOLD_BELOW:
            parts.append(
                f"{observation.steps_left} steps left." if observation.steps_left > 1 else "This is the last step."
            )
        return "\n".join(filter(None, parts))

    # ------------------------------------------------------------------ what becomes of a reply

    def _completed(self, action: Action) -> Action:
        self._bad_replies = 0
        if action.kind is ActionKind.RUN:
            return replace(action, env=self._env, timeout_s=action.timeout_s or self._timeout_s)
        return replace(action, env=self._env) if action.kind in (ActionKind.LINT, ActionKind.SUBMIT) else action

    def _correction(self, problem: str) -> Action:
        self._bad_replies += 1
        if self._bad_replies < _MOST_BAD_REPLIES:
            return Action(ActionKind.NONE, detail=problem)
        detail = f"{self._bad_replies} replies in a row were no action; of the last: {problem}"
        return Action(ActionKind.SUBMIT, ok=False, reason=Reason.BAD_REPLIES, detail=detail)

    def _stop(self, reason: Reason, detail: str) -> Action:
        self._last = Action(ActionKind.SUBMIT, ok=False, reason=reason, detail=detail)
        return self._last


class _Circles:
    """How often the last action was done before with the same result (`count`), and how often it ended in the same way,
    whatever it printed (`repeats`), since anything was done that changed files and was new."""

    def __init__(self) -> None:
        self.count = self.repeats = 0
        self._seen: Counter[str] = Counter()
        self._changing: set[str] = set()

    @property
    def closed(self) -> bool:
        return self.count >= _MOST_CIRCLES or self.repeats >= _MOST_REPEATS

    def add(self, action: Action, result: CommandResult | None, text: str, changed: bool | None) -> None:
        did = content_id(replace(action, exchanges=(), note="", detail=""))
        if changed is not False and did not in self._changing:
            self._changing.add(did)
            self._seen.clear()
        ended = content_id([did, f"{result.exit_status} {result.limit}" if result is not None else "done"])
        same = content_id([did, _VARYING.sub("", text)])
        self._seen.update((ended, same))
        self.count, self.repeats = self._seen[same], self._seen[ended]


def _outcome(action: Action, result: CommandResult | None, most_characters: int) -> str:
    if result is not None:
        return shown(result, most_characters, _MARKS.get(action.kind, "output"))
    if action.kind is ActionKind.ROLLBACK:
        return "All of it is undone: this is the initial state." if not action.undo else "It is undone."
    return f"{action.path} is written."


def _advice(action: Action, result: CommandResult | None) -> list[str]:
    if action.kind is ActionKind.RUN and result is not None and result.ok and _LASTS_NOT.fullmatch(action.command):
        return ["This has no effect on later commands: each starts anew in /workspace. Write: cd FOLDER && COMMAND"]
    return []


def _named(action: Action | None) -> str:
    """An action on one line."""
    if action is None or action.kind is ActionKind.NONE:
        return "a reply without an action"
    if action.kind is ActionKind.RUN:
        return shortened(action.command, 100)
    if action.kind is ActionKind.SEARCH:
        return shortened(f"search {action.path} for {action.command}", 100)
    return shortened(f"{action.kind} {action.path}")
