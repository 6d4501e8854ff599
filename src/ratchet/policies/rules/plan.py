"""What the rules intend to do to a sandbox, as data. A repair is a change to the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """Everything that decides how a Python project is installed. Two equal plans build the same environment.

    `python` is a version such as "3.11"; it chooses the base. `debian` are Debian packages. `requirements` are
    PEP 508 strings installed beside the project (test and development dependencies); `constraints` are PEP 508
    strings that bound any of them; `left_out` are normalised distribution names that must not be asked for.
    `exclude_newer` is an ISO date: resolve as of then. `build_requirements` are needed inside the environment when
    the project is built without isolation. `env` is what every command gets. `in_place` builds extension modules
    inside the source tree. `git_version`, where set, gives the checkout a git repository tagged with that version.
    `build_constraints` are PEP 508 strings that bound what isolated builds get; `only_binary` are normalised names of
    distributions that are never built from source; `documented_debian` are Debian packages that the project's own docs
    or CI install, of which those are taken that the base's suite has; `pytest_options` are words for PYTEST_ADDOPTS.
    """

    python: str
    debian: tuple[str, ...] = ()
    documented_debian: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    build_requirements: tuple[str, ...] = ()
    build_constraints: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    pytest_options: tuple[str, ...] = ()
    exclude_newer: str | None = None
    editable: bool = True
    build_isolation: bool = True
    install_project: bool = True
    in_place: bool = False
    git_version: str | None = None
    locale: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
