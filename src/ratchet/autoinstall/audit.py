"""The audit of a replayed environment: held-out goals, sabotage, three offline runs of the suite."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ratchet.policies.rules.project import needed_distributions
from ratchet.protocols import Sandbox
from ratchet.records import (
    CommandResult,
    Fact,
    Goal,
    GoalKind,
    Outcome,
    Recipe,
    Sabotage,
    Survey,
    TestRun,
    Verdict,
)
from ratchet.verdicts import need_network

RUNS = 3  # of the suite, to find the flaky tests
SABOTAGE_S = 1200.0

# Every process but the one that does it and those that wait for it.
_STOP_ALL = """\
keep=" 1 "; each=$$
while [ "$each" -gt 1 ]; do keep="$keep$each "; each=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$each/status"); done
for each in /proc/[0-9]*; do
  case "$keep" in *" ${each#/proc/} "*) ;; *) kill -9 "${each#/proc/}" 2>/dev/null ;; esac
done
true"""


@dataclass(frozen=True)
class Damage:
    """One way to break an environment: a command that runs as root in a fork of it. It exits with a failure where
    there is nothing to break, and then the damage does not count as tried."""

    name: str
    command: str


def damages(survey: Survey, recipe: Recipe) -> list[Damage]:
    """What could be broken in an environment, one or more of each kind that it has."""
    found: list[Damage] = []
    if name := survey.first("project-name"):
        found.append(Damage("uninstall the project", _uninstall(name)))
    for needed in needed_distributions(survey)[:2]:
        found.append(Damage(f"uninstall {needed}", _uninstall(needed)))
    found.append(Damage("uninstall the test runner", _uninstall("pytest")))
    own = {*survey.values("import-name"), "pytest", "setuptools", "tests", "test"}
    for module in [m for m in survey.values("test-import") if m.isidentifier() and m not in own][:3]:
        found.append(Damage(f"uninstall what provides {module}", _uninstall_provider(module)))
    for fact in [f for f in survey.of("import-name") if all(part.isidentifier() for part in f.value.split("."))][:1]:
        found.append(Damage(f"truncate {fact.value}", _truncate(fact)))
    for module in survey.values("extension-module")[:1]:
        found.append(Damage(f"remove the compiled {module}", _remove_file(module)))
    for package in _libraries(recipe)[:2]:
        found.append(Damage(f"remove the files of {package}", _remove_package(package)))
    if recipe.start:
        found.append(Damage("stop the services", _STOP_ALL))
    return found


def sabotage(
    open_fork: Callable[[], Sandbox],
    judge_in: Callable[[Sandbox, Goal], Verdict],
    found: Sequence[Damage],
    targets: Sequence[Goal],
    durations_s: Mapping[str, float],
) -> tuple[Sabotage, ...]:
    """Do each damage in a fork of its own, and ask the targets, the quickest first, until one notices. After
    `SABOTAGE_S` seconds no further damage is begun."""
    ordered = sorted(targets, key=lambda goal: durations_s.get(goal.id, 0.0))
    done: list[Sabotage] = []
    deadline = time.monotonic() + SABOTAGE_S
    for damage in found:
        if time.monotonic() > deadline:
            break
        with open_fork() as sandbox:
            if not sandbox.run(damage.command, user="root", cwd="/", timeout_s=120).ok:
                continue
            noticed: Verdict | None = None
            for goal in ordered:
                verdict = judge_in(sandbox, goal)
                if not verdict.passed:
                    noticed = verdict
                    break
            done.append(
                Sabotage(
                    damage.name,
                    damage.command,
                    noticed.goal if noticed else None,
                    noticed.why if noticed else "no target noticed",
                )
            )
    return tuple(done)


def weak_targets(
    targets: Sequence[Goal], sabotages: Sequence[Sabotage], pristine: Sequence[Verdict]
) -> tuple[str, ...]:
    """Targets that prove little: they noticed no damage although they were asked about some that others noticed, or
    they passed in the pristine sandbox."""
    noticed = {s.noticed_by for s in sabotages if s.noticed_by}
    already = {v.goal for v in pristine if v.passed}
    unnoticed = any(s.noticed_by is None for s in sabotages)
    return tuple(
        goal.id
        for goal in targets
        if goal.id in already or (unnoticed and goal.id not in noticed and goal.kind is not GoalKind.TESTS)
    )


def flaky_tests(runs: Sequence[TestRun]) -> tuple[str, ...]:
    """Tests whose outcome was not the same in all runs, or that were not in all of them."""
    outcomes: dict[str, list[Outcome]] = {}
    for run in runs:
        for case in run.cases:
            outcomes.setdefault(case.id, []).append(case.outcome)
    return tuple(sorted(i for i, seen in outcomes.items() if len(set(seen)) > 1 or len(seen) != len(runs)))


def audit_tests(
    first: TestRun, rerun: Callable[[], Verdict], *, together: bool
) -> tuple[TestRun, tuple[str, ...], tuple[str, ...]]:
    """The first run, the flaky tests over `RUNS` runs, and those that want a network. A rerun that left no report (it
    hung, say) is named as such among the flaky.

    With `together` the reruns go on side by side where there are cores for it: rollouts will share the machine as well.
    """
    workers = min(RUNS - 1, len(os.sched_getaffinity(0))) if together else 1
    with ThreadPoolExecutor(max_workers=workers) as pool:
        verdicts = list(pool.map(lambda _: rerun(), range(RUNS - 1)))
    flaky = flaky_tests([first, *(verdict.tests for verdict in verdicts if verdict.tests is not None)])
    failed = tuple(f"the whole suite: {verdict.why}" for verdict in verdicts if verdict.tests is None)
    return first, failed + flaky, tuple(case.id for case in need_network(first))


def resolved_packages(sandbox: Sandbox, env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the Python distributions and the Debian packages that are installed."""
    listing = "import importlib.metadata as m\nfor d in m.distributions(): print(d.metadata['Name'], d.version)"
    python = sandbox.run(f"python -c {shlex.quote(listing)}", env=env)
    debian = sandbox.run("dpkg-query -W -f '${Package} ${Version}\\n'")
    return _versions(python), _versions(debian)


def _versions(result: CommandResult) -> dict[str, str]:
    if not result.ok:
        return {}
    pairs = (line.split() for line in result.output.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and re.fullmatch(r"[\w.+-]+", pair[0])}


def _libraries(recipe: Recipe) -> list[str]:
    """Shared-library packages behind the development packages that the recipe installs."""
    names: list[str] = []
    for step in recipe.steps:
        if match := re.search(r"apt-get install [^\n]*--no-install-recommends ([^\n&|;]+)", step.command):
            names += [word for word in match.group(1).split() if re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", word)]
    return names


def _uninstall(name: str) -> str:
    quoted = shlex.quote(name)
    return f"uv pip show -q --python /opt/venv {quoted} 2>/dev/null && uv pip uninstall -q --python /opt/venv {quoted}"


def _uninstall_provider(module: str) -> str:
    code = f"import importlib.metadata as m; print(m.packages_distributions()[{module!r}][0])"
    return f'name=$(/opt/venv/bin/python -c {shlex.quote(code)}) && uv pip uninstall -q --python /opt/venv "$name"'


def _located(module: str, body: str) -> str:
    code = f"import importlib.util, os\nspec = importlib.util.find_spec({module!r})\npath = spec.origin\n{body}"
    return f"cd /workspace && /opt/venv/bin/python -c {shlex.quote(code)}"


def _truncate(module: Fact) -> str:
    """Done by the shell alone: an interpreter that was put in the place of the real one might only say that it did."""
    installed = f"/opt/venv/lib/python3*/*-packages/{module.value.replace('.', '/')}"
    source = shlex.quote(f"/workspace/{module.file}")
    # A syntax error rather than an empty file: an empty __init__ can be a valid one.
    return (
        f"broken=1; for file in {source} {source}/__init__.py {installed}.py {installed}/__init__.py; do "
        '[ -f "$file" ] && echo "def (" > "$file" && broken=0; done; exit $broken'
    )


def _remove_file(module: str) -> str:
    return _located(module, "assert path.endswith('.so')\nos.remove(path)")


def _remove_package(package: str) -> str:
    # What a -dev package links to is what is needed at run time, so its dependencies on shared libraries go as well.
    quoted = shlex.quote(package)
    return (
        f"packages=\"{quoted} $(dpkg-query -W -f '${{Depends}}' {quoted} | tr ',|' '\\n\\n' | awk '{{print $1}}' "
        "| grep -E '^lib.*[0-9]' | grep -vE '^lib(c6|gcc|stdc)' | head -3)\"; "
        "files=$(for p in $packages; do dpkg-query -L $p 2>/dev/null; done | grep -E '\\.so(\\.|$)|/s?bin/' || true); "
        'test -n "$files" && rm -f $files'
    )
