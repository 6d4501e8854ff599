"""The version comes from git metadata, and the checkout has none: say which version it is.

An invented number will not do where tests or other packages compare it, so it is the checkout's own, if known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ratchet.policies.rules.repairs import changes
from ratchet.policies.rules.repairs.failure import Context, Repair
from ratchet.policies.rules.repairs.reading import EVERY_STAGE, Reading, Rule, line_of, pattern
from ratchet.policies.rules.versions import first_version

_UNKNOWN = "0.0.1"


def version_of(context: Context) -> str:
    """The checkout's version in normal form; where none is known, one that sorts before any release."""
    found = first_version([context.checkout.version, context.survey.first("project-version")])
    return found or _UNKNOWN


def _pretend(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    version = version_of(reading.context)
    name = re.sub(r"[^A-Za-z0-9]+", "_", reading.project).upper()
    values = {"SETUPTOOLS_SCM_PRETEND_VERSION": version}
    if name:
        values[f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}"] = version
    yield Repair(
        "version:setuptools-scm", f"setuptools-scm finds no git metadata: {line_of(match)}", changes.set_env(values)
    )


def _variable(name: str, tool: str) -> Rule:
    """A tool that takes the version from an environment variable; `pattern` comes from the table below."""
    text = _TOOLS[tool]

    def repair(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
        change = changes.set_env({name: version_of(reading.context)})
        yield Repair(f"version:{tool}", f"{tool} finds no git metadata: {line_of(match)}", change)

    return Rule(pattern(text), repair)


def _git(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Whatever asks git itself gets a repository with one commit and a tag."""
    yield Repair(
        "version:git",
        f"git metadata is asked for: {line_of(match)}",
        changes.both(changes.install_debian("git"), changes.git_version(version_of(reading.context))),
    )


def _unsafe_repository(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    values = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    yield Repair("git-safe-directory", f"git refuses another user's folder: {line_of(match)}", changes.set_env(values))


_TOOLS = {
    "pbr": r"Versioning for this project requires either an sdist tarball",
    "pdm-backend": r"Cannot find the version from SCM or SCM isn't detected",
    "hatch-vcs-build": r"HATCH_BUILD_SCM_VERSION",
}

RULES = (
    Rule(
        pattern(
            r"^LookupError: setuptools-scm was unable to detect version"
            r"|^LookupError: Error getting the version from source `vcs`"
        ),
        _pretend,
    ),
    _variable("PBR_VERSION", "pbr"),
    _variable("PDM_BUILD_SCM_VERSION", "pdm-backend"),
    Rule(pattern(r"^RuntimeError: Unable to detect version control system"), _git),
    Rule(
        pattern(
            r"^versioningit could not find a version|^(?:\w+\.)*NotVCSError: .*|^(?:\w+\.)*NotVersioningitError: .*"
        ),
        _git,
    ),
    Rule(pattern(r"^fatal: not a git repository"), _git),
    Rule(pattern(r"^fatal: not a git repository"), _git, where=lambda reading: reading.captured),
    Rule(pattern(r"^(?:git\.exc\.|dulwich\.errors\.)?(?:InvalidGitRepositoryError|NotGitRepository)\b.*"), _git),
    Rule(pattern(r"^fatal: No names found, cannot describe anything|^fatal: No tags can describe"), _git),
    Rule(
        pattern(r"^fatal: (?:unsafe repository|detected dubious ownership in repository).*"),
        _unsafe_repository,
        EVERY_STAGE,
        where=lambda reading: f"{reading.errors}\n{reading.captured}",
    ),
)
