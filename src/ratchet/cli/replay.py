"""A trajectory as text: for each step what the policy thought, what it did, and what came of it.

All of it is untrusted (a repository's output, a model's reply): lines are cleaned here before they are cut, and again
where they are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.cli.screen import clean, duration, one_line, plural, size
from ratchet.records import Action, ActionKind, CommandResult, Edit, Exchange, Step, Trajectory, Usage

_FENCES = ("```", "~~~")


@dataclass(frozen=True)
class View:
    """How much is shown: `full` cuts nothing, `prompts` adds what models were asked."""

    full: bool = False
    prompts: bool = False

    def block(self, text: str, mark: str, most_lines: int) -> Iterator[str]:
        """The lines of `text`, each after `mark`; the middle is left out where there are too many."""
        lines = clean(text).rstrip().splitlines()
        cut = len(lines) - most_lines
        if not self.full and cut > 1:
            head = (most_lines + 1) // 2
            tail = lines[len(lines) - (most_lines - head) :]
            lines = [*lines[:head], f"[… {cut} lines left out …]", *tail]
        for line in lines:
            yield f"  {mark}{line if self.full or len(line) <= 160 else line[:159] + '…'}".rstrip()


def replay_lines(trajectory: Trajectory, view: View = View()) -> Iterator[str]:
    """The whole trajectory, line by line, with the totals at the end."""
    for number, step in enumerate(trajectory.steps, 1):
        yield ""
        yield f"step {number}  {_title(step.action)}"
        yield from _exchanges(step.action, view)
        yield from view.block(_thought(step.action, view), "# ", 6)
        yield from _action(step.action, view)
        if step.result is not None:
            yield from _result(step, step.result, view)
    yield ""
    yield _totals(trajectory)


def usage_of(trajectory: Trajectory) -> Usage:
    """What the calls of models in a trajectory took."""
    usage = Usage()
    for exchange in _calls(trajectory):
        usage = usage.plus(exchange.reply)
    return usage


# --------------------------------------------------------------------------- what the policy did


def _title(action: Action) -> str:
    match action.kind:
        case ActionKind.RUN:
            services = ", with the start script up" if action.start else ""
            return f"run as {one_line(action.user, 40)} in {one_line(action.cwd, 100)}{services}"
        case ActionKind.WRITE | ActionKind.EDIT:
            return f"{action.kind.value} {one_line(action.path, 120)}"
        case ActionKind.READ:
            until = str(action.last) if action.last else "as far as is shown"
            return f"read {one_line(action.path, 120)}, lines {action.first} to {until}"
        case ActionKind.SEARCH:
            return f"search {one_line(action.path, 120)} for {one_line(action.command, 120)}"
        case ActionKind.LINT:
            return f"lint {one_line(action.path, 120)}"
        case ActionKind.ROLLBACK:
            return "roll back " + (f"the last {plural(action.undo, 'change')}" if action.undo else "everything")
        case ActionKind.SUBMIT if action.ok:
            return "submit: done"
        case ActionKind.SUBMIT:
            return f"give up: {action.reason.value if action.reason else 'no reason'}"
        case ActionKind.NONE:
            return "nothing done"


def _action(action: Action, view: View) -> Iterator[str]:
    match action.kind:
        case ActionKind.RUN:
            for index, line in enumerate(view.block(action.command, "", 12)):
                yield f"  {'  ' if index else '$ '}{line[2:]}"
        case ActionKind.WRITE:
            yield from view.block(action.content or "[empty]", "+ " if action.content else "", 12)
        case ActionKind.EDIT:
            for edit in action.edits:
                yield from view.block("\n".join(diff(edit)), "", 24)
        case ActionKind.SUBMIT:
            yield from view.block(action.detail, "", 6)
            yield from view.block(action.start, "start: ", 12)
        case ActionKind.READ | ActionKind.SEARCH | ActionKind.LINT | ActionKind.ROLLBACK | ActionKind.NONE:
            return


def diff(edit: Edit) -> list[str]:
    """The lines of an edit as a small diff: what is the same at the beginning and the end once, the rest as - and +."""
    old, new = edit.search.splitlines(), edit.replace.splitlines()
    shortest = min(len(old), len(new))
    head = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    tail = next((n for n in range(shortest - head) if old[-1 - n] != new[-1 - n]), shortest - head)
    return [
        *(f"  {line}" for line in old[:head]),
        *(f"- {line}" for line in old[head : len(old) - tail]),
        *(f"+ {line}" for line in new[head : len(new) - tail]),
        *(f"  {line}" for line in old[len(old) - tail :]),
    ]


def _result(step: Step, result: CommandResult, view: View) -> Iterator[str]:
    yield from view.block(result.output, "| ", 16)
    if step.action.kind is not ActionKind.RUN:
        return
    ended = f"ended by the {result.limit.value} limit" if result.limit else f"exit status {result.exit_status}"
    parts = [f"{ended} after {duration(result.seconds)}"]
    if result.output_bytes > 2000:
        parts.append(f"{size(result.output_bytes)} of output")
    if step.changed is False:
        parts.append("changed nothing")
    yield f"  = {', '.join(parts)}"


# --------------------------------------------------------------------------- what models said


def _exchanges(action: Action, view: View) -> Iterator[str]:
    for exchange in action.exchanges:
        if view.prompts:
            for message in exchange.messages:
                yield f"  [{one_line(message.role, 20)}]"
                yield from view.block(message.content, "> ", 40)
        reply = exchange.reply
        tokens = f"{reply.prompt_tokens} + {reply.completion_tokens} tokens"
        yield f"  model {one_line(exchange.model, 60)}: {tokens}, {duration(reply.seconds)}"
        if exchange.problem:
            yield f"  malformed reply ({one_line(reply.finish, 20)}): {one_line(exchange.problem, 300)}"
            yield from view.block(_said(exchange), "? ", 12)
        elif view.full:
            yield from view.block(_said(exchange), "? ", 0)


def _thought(action: Action, view: View) -> str:
    """The note, or else what stands around the blocks of the replies."""
    if action.note:
        return action.note
    if view.full:
        return ""  # the replies are shown whole
    taken = [exchange.reply for exchange in action.exchanges if not exchange.problem]
    return "\n".join(filter(None, (around_blocks(reply.text) or reply.reasoning for reply in taken)))


def around_blocks(text: str) -> str:
    """The text of a reply without its fenced blocks."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCES):
            inside = not inside
        elif not inside and line.strip():
            kept.append(line.strip())
    return "\n".join(kept)


def _said(exchange: Exchange) -> str:
    reply = exchange.reply
    calls = [f"{call.name}({call.arguments})" for call in reply.tool_calls]
    return "\n".join(part for part in (reply.reasoning, reply.text, *calls) if part)


# --------------------------------------------------------------------------- totals


def _calls(trajectory: Trajectory) -> Sequence[Exchange]:
    return [exchange for step in trajectory.steps for exchange in step.action.exchanges]


def _totals(trajectory: Trajectory) -> str:
    commands = [s.result for s in trajectory.steps if s.action.kind is ActionKind.RUN and s.result is not None]
    failed = sum(not result.ok for result in commands)
    seconds = sum(result.seconds for result in commands)
    parts = [
        f"{plural(len(trajectory.steps), 'step')}, {one_line(trajectory.end, 80)}",
        f"{plural(len(commands), 'command')}, {failed} failed, {duration(seconds)}",
    ]
    usage, calls = usage_of(trajectory), _calls(trajectory)
    if calls:
        malformed = sum(bool(exchange.problem) for exchange in calls)
        cost = f", cost {usage.cost:.4f}" if usage.cost else ""
        parts.append(
            f"{plural(usage.calls, 'call')} of models, {malformed} malformed, {usage.prompt_tokens} + "
            f"{usage.completion_tokens} tokens, {duration(usage.seconds)}{cost}"
        )
    return "; ".join(parts)
