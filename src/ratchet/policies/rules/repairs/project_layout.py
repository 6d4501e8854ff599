"""Modules of the project itself: where they lie, and what makes them importable. No index has them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ratchet.policies.rules.repairs import changes
from ratchet.policies.rules.repairs.failure import Context, Repair
from ratchet.policies.rules.repairs.reading import TEST_STAGES, Reading, Rule, line_of, pattern

# Modules that a build writes into the package: they exist once the project is installed from here.
_GENERATED = frozenset({"_version", "version", "__version__", "__about__", "_git", "version_info"})

_MOST_FOLDERS = 400


def find_folder(context: Context, module: str) -> str | None:
    """The folder of the checkout, relative to it, from which a top-level module can be imported; None: it is not
    here. The root comes first, then `src` and `lib`, then the folders of test files and those above."""
    root = Path(context.checkout.path)
    for folder in _folders(context):
        path = root / folder
        if _is_folder(path / module) and folder != "" and not _has_modules(path / module):
            continue
        if _is_folder(path / module) or _is_file(path / f"{module}.py"):
            return folder
    return None


def has_folder(context: Context, name: str) -> bool:
    """Whether a folder of that name lies in the root of the checkout."""
    return _is_folder(Path(context.checkout.path) / name)


def own_module(module: str, reading: Reading, line: str) -> Iterator[Repair]:
    """Repairs for a missing module that belongs to the project, by its dotted name."""
    top, _, rest = module.partition(".")
    leaf = module.rpartition(".")[2]
    survey = reading.context.survey
    plan = reading.plan
    if rest and leaf in _GENERATED and not (plan.editable and plan.install_project):
        yield from _install_from_here(line)
    elif rest:
        compiled = module in survey.values("extension-module") or not _known(module, survey.values("module"))
        if compiled and (survey.of("extension-module") or leaf.startswith("_")):
            yield build_in_place(module, line)
    else:
        yield from importable(top, reading, line)


def importable(top: str, reading: Reading, line: str) -> Iterator[Repair]:
    """Repairs that make a top-level module that lies in the checkout importable."""
    if top in reading.own_modules and not reading.plan.install_project:
        yield from _install_from_here(line)
    folder = find_folder(reading.context, top)
    if folder is None and (fact := next((f for f in reading.context.survey.of("import-name") if f.value == top), None)):
        parent = PurePosixPath(fact.file)
        folder = str(parent.parent.parent if parent.name == "__init__.py" else parent.parent).strip(".")
    if folder is not None and ".." not in PurePosixPath(folder).parts:
        yield Repair(
            f"python-path:{folder or '.'}",
            f"{top} lies in the checkout, in {folder or 'its root'}: {line}",
            changes.add_python_path(folder),
        )


def build_in_place(module: str, line: str) -> Repair:
    return Repair(
        "in-place",
        f"the extension module {module} is not in the source tree that the tests import: {line}",
        lambda plan: replace(plan, in_place=True, editable=True),
    )


def _install_from_here(line: str) -> Iterator[Repair]:
    yield Repair(
        "install-project",
        f"the project has to be installed from the source tree: {line}",
        lambda plan: replace(plan, install_project=True, editable=True),
    )


def _known(module: str, modules: tuple[str, ...]) -> bool:
    return module in modules or any(m.startswith(f"{module}.") for m in modules)


def _folders(context: Context) -> Iterator[str]:
    seen: dict[str, None] = dict.fromkeys(["", "src", "lib", "python", "tests", "test"])
    for fact in context.survey.of("test-file"):
        for parent in PurePosixPath(fact.value).parents:
            if len(seen) < _MOST_FOLDERS and ".." not in parent.parts and not parent.is_absolute():
                seen.setdefault(str(parent) if str(parent) != "." else "")
    yield from seen


def _has_modules(path: Path) -> bool:
    with os.scandir(path) as entries:
        return any(entry.name.endswith(".py") for entry, _ in zip(entries, range(5000), strict=False))


def _is_folder(path: Path) -> bool:
    """A folder that is no link: nothing leads out of the checkout."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def _is_file(path: Path) -> bool:
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except OSError:
        return None


def _mismatch(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    yield Repair(
        "import-mode",
        f"test modules of the same name lie in different folders: {line_of(match)}",
        changes.add_pytest_options("--import-mode=importlib"),
    )


RULES = (Rule(pattern(r"^import file mismatch:"), _mismatch, TEST_STAGES),)
