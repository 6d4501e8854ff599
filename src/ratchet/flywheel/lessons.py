"""Lessons: generation 0's solutions in the words of a model, for the warm start.

Rules and references solve problems in ways of their own: recipes with files of constraints, patches of whole files.
Here they are said as a model would say them, in one reply or two, and played in the real sandboxes like any other try.
Only what passes there becomes a lesson, so a wording that is wrong is lost and does no harm.
"""

from __future__ import annotations

import difflib
import re
import shlex
import threading
from collections.abc import Iterable, Mapping, Sequence

from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from ratchet.policies.local.templates import Tokens
from ratchet.policies.model.brief import excerpt, without_marker
from ratchet.policies.model.builder import VARIABLES
from ratchet.records import Environment, Recipe, RecipeStep, Sampled
from ratchet.task_records import Task

_INSTALL = re.compile(r"(?:uv\s+)?pip\s+install\s")
_LONGEST_COMMAND = 400
_MOST_COMMANDS = 4
_OWN_VARIABLES = frozenset({*VARIABLES, "UV_EXCLUDE_NEWER", "UV_CACHE_DIR", "PIP_CACHE_DIR"})


class ScriptedSampler:
    """A `protocols.Sampler` that samples what it is told: the texts in their order, each as the tokens that a model
    would have sampled, with the end of its turn."""

    def __init__(self, tokens: Tokens, texts: Sequence[str]) -> None:
        self._tokens = tokens
        self._left = list(texts)
        self._lock = threading.Lock()

    def sample(
        self,
        prompt_ids: Sequence[int],  # noqa: ARG002
        *,
        max_tokens: int,
        temperature: float = 1.0,  # noqa: ARG002
        stop: Sequence[str] = (),  # noqa: ARG002
    ) -> Sampled:
        with self._lock:
            text = self._left.pop(0) if self._left else "I have nothing more to say."
        ids = (*self._tokens.encode(text), self._tokens.end)
        if len(ids) > max_tokens:
            return Sampled(ids[:max_tokens], (0.0,) * max_tokens, "length")
        return Sampled(ids, (0.0,) * len(ids), "stop")


# --------------------------------------------------------------------------- installs


def install_lessons(environment: Environment) -> list[list[str]]:
    """Ways to say the environment's recipe: each a list of replies. None where it has steps that no command says."""
    commands = recipe_commands(environment.recipe, environment.base.pythons[0])
    if not commands:
        return []
    ways = [[_merged(commands)], commands] if len(commands) > 1 and _all_install(commands) else [commands]
    return [[*map(shell_reply, way), "```submit\n```"] for way in ways if len(way) <= _MOST_COMMANDS]


def shell_reply(command: str) -> str:
    return f"```sh\n{command}\n```"


def recipe_commands(recipe: Recipe, python: str) -> list[str]:
    """The recipe as commands for whoever finds a virtual environment: the installs, with what stands in files that the
    recipe wrote; empty where a step cannot be said like that."""
    files: dict[str, str] = {}
    commands: list[str] = []
    for step in recipe.steps:
        if step.path:
            files[step.path] = step.content
        elif _is_opening(step):
            continue
        elif _INSTALL.search(step.command):
            command = _install_command(step, files, python)
            if command:
                commands.append(command)
        else:
            commands.append(_with_variables(step, step.command.strip()))
    fits = all("\n" not in command and len(command) <= _LONGEST_COMMAND for command in commands)
    return commands if fits else []


def _is_opening(step: RecipeStep) -> bool:
    """Whether this only makes the user or the virtual environment, which a model is given."""
    return "useradd" in step.command or step.command.startswith("uv venv")


def _install_command(step: RecipeStep, files: Mapping[str, str], python: str) -> str:
    """Without the options that only make an install repeatable, and without files; empty for nothing to install."""
    words = shlex.split(step.command)
    kept: list[str] = []
    given = iter(words)
    for word in given:
        if word in ("-c", "--constraint", "--constraints", "--build-constraints", "--build-constraint"):
            next(given, None)
        elif word in ("-r", "--requirement", "--requirements"):
            kept += _requirements(files.get(next(given, ""), ""), python)
        elif word not in ("--no-progress", "--quiet", "-q"):
            kept.append(word)
    install = kept.index("install") + 1 if "install" in kept else len(kept)
    if not kept[install:]:
        return ""
    return _with_variables(step, " ".join(map(_quoted, [*kept[:install], *dict.fromkeys(kept[install:])])))


def _requirements(text: str, python: str) -> list[str]:
    """The requirements that apply, without their markers."""
    found = []
    for line in text.splitlines():
        try:
            requirement = Requirement(line.split(" #")[0].strip())
        except InvalidRequirement:
            continue
        try:
            applies = requirement.marker is None or requirement.marker.evaluate({"python_version": python})
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName):
            applies = True
        if applies:
            found.append(without_marker(requirement))
    return found


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else shlex.quote(word)


def _with_variables(step: RecipeStep, command: str) -> str:
    """With the variables in front that a model's commands do not get anyway."""
    extra = {name: value for name, value in step.env.items() if name not in _OWN_VARIABLES}
    return " ".join([*(f"{name}={_quoted(value)}" for name, value in sorted(extra.items())), command])


def _all_install(commands: Iterable[str]) -> bool:
    return all(command.startswith("uv pip install ") and "--no-" not in command for command in commands)


def _merged(commands: Sequence[str]) -> str:
    words = dict.fromkeys(word for command in commands for word in command.removeprefix("uv pip install ").split(" "))
    if "-e" in words:  # its argument has to stay behind it
        return "uv pip install " + " ".join(command.removeprefix("uv pip install ") for command in commands)
    return "uv pip install " + " ".join(words)


# --------------------------------------------------------------------------- tasks


def task_lessons(task: Task) -> list[list[str]]:
    """The reference solution as one edit, in up to two widths; none where it is no edit of the code that is shown."""
    code = excerpt(task)
    change = next((change for change in task.changes if code is not None and change.path == code.path), None)
    if code is None or change is None or change.after is None or change.before is None or len(task.changes) != 1:
        return []
    ways = [edit_reply(code.path, change.after, change.before, around=around) for around in (0, 1)]
    return [[way] for way in dict.fromkeys(filter(None, ways))]


def edit_reply(path: str, wrong: str, right: str, *, around: int) -> str:
    """An edit block that makes `right` of `wrong`, two texts of a file: the lines that differ, with at least `around`
    others before and after them, and as many more as make them unique. Empty where they are the same."""
    old, new = wrong.split("\n"), right.split("\n")
    differing = [op for op in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if op[0] != "equal"]
    if not differing:
        return ""
    first, last = differing[0][1], differing[-1][2]
    tail = len(new) - (len(old) - last)  # where what follows goes on in the right text
    first, wider = max(0, first - around), min(len(old), last + around)
    # Lines that vanish need one that stays: to replace a line by nothing leaves an empty one.
    while first == wider or (first == tail and last == wider) or not _is_unique(wrong, old[first:wider]):
        if first == 0 and wider == len(old):
            return ""
        first, wider = max(0, first - 1), min(len(old), wider + 1)
    replaced = [*new[first:tail], *old[last:wider]]
    search, replace = "\n".join(old[first:wider]), "\n".join(replaced)
    return f"```edit {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```"


def _is_unique(text: str, lines: Sequence[str]) -> bool:
    """Whether an edit finds these lines once. Blank lines at the ends of a block may not be read as part of it."""
    block = "\n".join(lines).strip("\n")
    return bool(block.strip()) and text.count(block) == 1
