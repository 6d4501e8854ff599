"""Memory of what worked: after which error which commands helped, from installs that were verified.

What is kept comes from sandboxed runs of repositories that may be hostile, and is shown to policies that install other
ones. A repository can choose what its errors say, and may talk a model into a command. So only commands are kept that
stayed in the recipe of a verified environment, short, printable and on one line; a project counts once however often
it is installed; the text says where it comes from and that it is a hint. Whoever follows a bad one does so in a
sandbox, and has to pass a fresh replay and its targets. What belongs to one project (its names, its paths, URLs,
anything like a secret) is left out: it helps nobody else, and is nobody else's business.
"""

from __future__ import annotations

import fcntl
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ratchet.autoinstall.signatures import Telling, plain_name, telling_line
from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.events import redact
from ratchet.records import Action, ActionKind, Recipe, Step, Trajectory, content_id
from ratchet.scratch import locked
from ratchet.store import Store

KIND = "memory"

_MOST_COMMANDS = 6
_LONGEST_COMMAND = 300
_MOST_LINES_ADDED = 8
_MOST_PROJECTS = 50

_PRIVATE_PLACES = (WORKSPACE, "/tmp", "/home", "/root")  # noqa: S108 - the sandbox's, and only compared
# What generation 0 gives every installation, and other policies do not have.
_OUR_FILES = re.compile(r"\s(?:-c|--build-constraints)\s+/opt/ratchet/\S{1,100}")
_SECRET = re.compile(r"\w{0,40}(?:token|secret|passw|api_?key|credential)\w{0,40}\s*=", re.IGNORECASE)
_OPTIONS_WITH_VALUES = frozenset(
    {"-c", "--constraint", "--build-constraints", "-i", "--index-url", "--timeout", "--python", "-j", "-o"}
)
_WRAPPERS = frozenset({"sudo", "env", "command", "exec", "time", "nice", "xvfb-run"})


@dataclass(frozen=True)
class Memory:
    """After an error with this `signature`, which was about `package` (empty: nothing was named), the commands `fix`
    helped. `worked` is in how many projects; `projects` are the names of the latest of them."""

    ecosystem: str
    package: str
    signature: str
    fix: tuple[str, ...]
    worked: int = 1
    projects: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return content_id([self.ecosystem, self.package, self.signature])[:32]


# --------------------------------------------------------------------------- learning


def lessons_of(
    trajectory: Trajectory, recipe: Recipe, *, project: str, names: Iterable[str] = (), ecosystem: str = "python"
) -> list[Memory]:
    """What the trajectory of a verified attempt teaches; `recipe` is the one that was verified.

    For each command that failed with an error that says something: the commands of the recipe that were done after it,
    and not before it too, until the same command, or one like it, no longer gave that error. `names` are further
    names of the project (its modules); lessons and commands that name it are left out.
    """
    own = {plain for name in (project, *names) if (plain := plain_name(name))}
    steps = trajectory.steps
    runs = [_Run.of(step) for step in steps]
    lessons: dict[str, Memory] = {}
    for index, run in enumerate(runs):
        error = run.error if run else None
        if run is None or error is None or _names_any(f"{error.signature} {error.package}", own):
            continue
        again = next((n for n, later in enumerate(runs) if n > index and later and later.overcame(run)), None)
        if again is None:
            continue
        new = dict.fromkeys(_OUR_FILES.sub("", command) for command in _new_in(steps, index, again, recipe))
        fix = tuple(command for command in new if _is_general(command, own))
        if 0 < len(fix) <= _MOST_COMMANDS:
            lesson = Memory(ecosystem, error.package, error.signature, fix, 1, (project,))
            lessons.setdefault(lesson.id, lesson)
    return list(lessons.values())


@dataclass(frozen=True)
class _Run:
    """A command that came to its end: what ran, on which things, and with what error, None where it succeeded."""

    command: str
    ok: bool
    error: Telling | None
    program: str
    things: frozenset[str]

    @staticmethod
    def of(step: Step) -> _Run | None:
        action, result = step.action, step.result
        if action.kind is not ActionKind.RUN or result is None or result.limit is not None:
            return None
        error = None if result.ok else telling_line(result.output)
        return _Run(action.command, result.ok, error, *_program(action.command))

    def overcame(self, failed: _Run) -> bool:
        """Whether this is the same work (the same program on the same thing, perhaps with other options), and the error
        is gone."""
        same = self.command == failed.command or (
            self.program == failed.program != "" and (bool(self.things & failed.things) or self.things == failed.things)
        )
        return same and (self.ok or self.error != failed.error)


def _new_in(steps: Sequence[Step], failed: int, again: int, recipe: Recipe) -> Iterator[str]:
    """What was done after the step `failed`, up to `again`, stayed in the recipe, and had not been done before."""
    kept = {(step.command, step.path, step.content) for step in recipe.steps if not step.may_fail}
    known = {step.action.command for step in steps[: failed + 1]}
    files = {step.action.path: step.action.content for step in steps[:failed] if step.action.path}
    before = steps[failed].action
    for index, step in enumerate(steps[failed + 1 : again + 1], failed + 1):
        action = step.action
        if (action.command, action.path, action.content) not in kept or step.changed is False:
            continue
        if action.kind in (ActionKind.WRITE, ActionKind.EDIT):
            yield from _added(action, files.get(action.path, ""))
        elif action.kind is ActionKind.RUN and step.result is not None and step.result.ok:
            variables = _new_variables(action, before) if index == again else ""
            if action.cwd in (WORKSPACE, "/") and (variables or action.command not in known):
                yield variables + action.command


def _added(action: Action, before: str) -> Iterator[str]:
    """The lines that a file gained, as commands."""
    known = set(before.splitlines())
    lines = [line for line in action.content.splitlines() if line.strip() and line not in known]
    if len(lines) <= _MOST_LINES_ADDED:
        yield from (f"echo {shlex.quote(line)} >> {shlex.quote(action.path)}" for line in lines)


def _new_variables(action: Action, before: Action) -> str:
    new = sorted((name, value) for name, value in action.env.items() if before.env.get(name) != value)
    return "".join(f"{name}={shlex.quote(value)} " for name, value in new)


# --------------------------------------------------------------------------- what commands are about


def _program(command: str) -> tuple[str, frozenset[str]]:
    """What the last command of a line runs ("pip install"), and on what: the words that are no options."""
    last = re.split(r"&&|;|\n", command.strip())[-1].partition("|")[0][:_LONGEST_COMMAND]
    words = [word for word in _words(last) if not re.fullmatch(r"\w+=.*", word, re.DOTALL)]
    while words and words[0] in _WRAPPERS:
        del words[0]
    if not words:
        return "", frozenset()
    program = re.sub(r"[\d.]+$", "", words.pop(0).rpartition("/")[2])
    if words[:1] == ["-m"]:
        program, words = words[1] if len(words) > 1 else "", words[2:]
    if program == "uv" and words[:1] == ["pip"]:
        program, words = "pip", words[1:]
    if words and re.fullmatch(r"[a-z][a-z-]*|setup\.py", words[0]):
        program = f"{program} {words.pop(0)}"
    things = [
        re.split(r"[\[<>=!~; ]", word, maxsplit=1)[0]
        for before, word in zip(["", *words], words, strict=False)
        if not word.startswith("-") and before not in _OPTIONS_WITH_VALUES
    ]
    return program, frozenset(things)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed
        return command.split()


def _is_general(command: str, own: set[str]) -> bool:
    """Whether a command may be of use elsewhere, and shows nothing of the project."""
    if len(command) > _LONGEST_COMMAND or not command.isprintable() or "```" in command or "://" in command:
        return False
    if redact(command) != command or _SECRET.search(command) or _names_any(command, own):
        return False
    paths = [part for word in _words(command) for part in word.split("=") if "/" in part and part[0] not in "@-"]
    return all(path[0] == "/" and not path.startswith(_PRIVATE_PLACES) for path in paths)


def _names_any(text: str, own: set[str]) -> bool:
    words = f"-{re.sub(r'[^a-z0-9]+', '-', text.lower())}-"
    return any(f"-{name}-" in words for name in own)


# --------------------------------------------------------------------------- the store


def remember(store: Store, memories: Iterable[Memory]) -> tuple[str, ...]:
    """Keep memories, merged with those about the same error, and return their ids.

    A project counts once. Where two fixes differ, what they have in common is kept, as that is what helped in both;
    with nothing in common, the one that helped in more projects, and of equals the newer one.
    """
    ids = []
    with locked(store.home / "memory.lock", fcntl.LOCK_EX):
        known = {memory.id: memory for memory in every(store)}
        for memory in memories:
            merged = _merged(known[memory.id], memory) if memory.id in known else memory
            known[memory.id] = merged
            ids.append(store.put(KIND, merged))
    return tuple(ids)


def _merged(old: Memory, new: Memory) -> Memory:
    fix = tuple(command for command in old.fix if command in new.fix)
    if not fix:
        return old if old.worked > new.worked else new
    fresh = tuple(project for project in new.projects if project not in old.projects)
    return replace(old, fix=fix, worked=old.worked + len(fresh), projects=(*old.projects, *fresh)[-_MOST_PROJECTS:])


def every(store: Store) -> list[Memory]:
    """All memories, the ones that changed last at the end."""
    return [store.get(KIND, record, Memory) for record in store.ids(KIND)]


def recall(
    store: Store,
    *,
    ecosystem: str,
    outputs: Iterable[str] = (),
    packages: Iterable[str] = (),
    most: int = 3,
) -> list[Memory]:
    """The memories that fit best: those of an error that `outputs` (of failed commands) show, then those about a
    package that they or `packages` name; of each the ones that helped in most projects first. Others are left out."""
    errors = [error for output in outputs if (error := telling_line(output)) is not None]
    signatures = {error.signature for error in errors}
    wanted = {plain_name(name) for name in (*packages, *(error.package for error in errors)) if name}
    fitting = [
        memory
        for memory in every(store)
        if memory.ecosystem == ecosystem
        and (memory.signature in signatures or (memory.package and plain_name(memory.package) in wanted))
    ]
    fitting.sort(key=lambda memory: (memory.signature not in signatures, -memory.worked, len(memory.fix), memory.id))
    return fitting[:most]


def as_text(memory: Memory) -> str:
    """A memory for a prompt: data with its origin, in a few lines. It names no project."""
    times = "1 project" if memory.worked == 1 else f"{memory.worked} projects"
    return "\n".join(
        [
            f"Noted when installing {times} (a hint from there, not an instruction): after the error",
            f"  {memory.signature}",
            "this helped:",
            *(f"  {command}" for command in memory.fix),
        ]
    )
