"""The changes that repairs make to a plan. Each checks the names it is given: what does not fit changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.version import Version

from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.repairs import names
from ratchet.policies.rules.repairs.failure import Change

WORKSPACE = "/workspace"


def require(*requirements: str) -> Change:
    """Install these beside the project. One that is there already, or must be left out, stays as it is."""

    def change(plan: Plan) -> Plan:
        present = {names.canonical(r) for r in plan.requirements} | set(plan.left_out)
        return replace(plan, requirements=plan.requirements + _fresh(requirements, present))

    return change


def constrain(*requirements: str) -> Change:
    """Bound whatever is installed. A new bound on a distribution replaces the old."""

    def change(plan: Plan) -> Plan:
        fresh = _fresh(requirements, set())
        bounded = {names.canonical(r) for r in fresh}
        kept = tuple(r for r in plan.constraints if names.canonical(r) not in bounded)
        return plan if set(fresh) <= set(plan.constraints) else replace(plan, constraints=kept + fresh)

    return change


def constrain_build(*requirements: str) -> Change:
    """Bound what isolated builds get."""

    def change(plan: Plan) -> Plan:
        fresh = _fresh(requirements, set())
        bounded = {names.canonical(r) for r in fresh}
        kept = tuple(r for r in plan.build_constraints if names.canonical(r) not in bounded)
        return plan if set(fresh) <= set(plan.build_constraints) else replace(plan, build_constraints=kept + fresh)

    return change


def build_without_isolation(declared: Iterable[str], *missing: str) -> Change:
    """Build inside the environment, with the declared build requirements and the missing ones."""
    wanted = (*missing, *declared, "setuptools", "wheel")

    def change(plan: Plan) -> Plan:
        present = {names.canonical(r) for r in plan.build_requirements}
        requirements = plan.build_requirements + _fresh(wanted, present)
        return replace(plan, build_isolation=False, build_requirements=requirements)

    return change


def only_binary(distribution: str) -> Change:
    """Never build this distribution from source: the newest release with a wheel is taken."""

    def change(plan: Plan) -> Plan:
        if names.distribution(distribution) is None or distribution in plan.only_binary:
            return plan
        return replace(plan, only_binary=(*plan.only_binary, distribution))

    return change


def allow_source(distribution: str) -> Change:
    return lambda plan: replace(plan, only_binary=tuple(name for name in plan.only_binary if name != distribution))


def bound_above(distribution: str, release: str) -> Change:
    """Keep a distribution before a release; a tighter bound that is there already stays."""

    def change(plan: Plan) -> Plan:
        for text in plan.constraints:
            if names.canonical(text) == distribution and any(
                spec.operator in {"<", "<=", "=="} and Version(spec.version) <= Version(release)
                for spec in Requirement(text).specifier
                if not spec.version.endswith("*")
            ):
                return plan
        return constrain(f"{distribution}<{release}")(plan)

    return change


def drop(distribution: str) -> Change:
    """Do not ask for this distribution beside the project."""

    def change(plan: Plan) -> Plan:
        kept = tuple(r for r in plan.requirements if names.canonical(r) != distribution)
        left_out = plan.left_out if distribution in plan.left_out else (*plan.left_out, distribution)
        return replace(plan, requirements=kept, left_out=left_out)

    return change


def relax(distribution: str) -> Change:
    """Ask for any version of this distribution beside the project; bounds on it go too."""

    def change(plan: Plan) -> Plan:
        requirements = tuple(distribution if names.canonical(r) == distribution else r for r in plan.requirements)
        constraints = tuple(r for r in plan.constraints if names.canonical(r) != distribution)
        return replace(plan, requirements=tuple(dict.fromkeys(requirements)), constraints=constraints)

    return change


def install_debian(*packages: str) -> Change:
    def change(plan: Plan) -> Plan:
        fresh = tuple(p for p in dict.fromkeys(packages) if names.debian(p) and p not in plan.debian)
        return replace(plan, debian=plan.debian + fresh)

    return change


def without_debian(*packages: str) -> Change:
    return lambda plan: replace(plan, debian=tuple(p for p in plan.debian if p not in packages))


def set_env(values: Mapping[str, str]) -> Change:
    """Variables that every command gets. What the plan has set already stays."""

    def change(plan: Plan) -> Plan:
        fresh = {k: v for k, v in values.items() if k not in plan.env and "\0" not in v and "\n" not in v}
        return replace(plan, env={**plan.env, **fresh}) if fresh else plan

    return change


def add_python_path(*folders: str) -> Change:
    """Make modules of these folders (relative to the checkout) importable."""

    def change(plan: Plan) -> Plan:
        paths = [f"{WORKSPACE}/{folder}".rstrip("/.") for folder in folders]
        present = [p for p in plan.env.get("PYTHONPATH", "").split(":") if p]
        fresh = [p for p in dict.fromkeys(paths) if p not in present]
        return replace(plan, env={**plan.env, "PYTHONPATH": ":".join(present + fresh)}) if fresh else plan

    return change


def use_python(version: str) -> Change:
    return lambda plan: replace(plan, python=version)


def resolve_as_of(date: str | None) -> Change:
    return lambda plan: replace(plan, exclude_newer=date)


def use_locale(name: str) -> Change:
    return lambda plan: replace(install_debian("locales")(plan), locale=name)


def add_pytest_options(*words: str) -> Change:
    def change(plan: Plan) -> Plan:
        present = " ".join(plan.pytest_options)
        return plan if " ".join(words) in present else replace(plan, pytest_options=(*plan.pytest_options, *words))

    return change


def git_version(version: str) -> Change:
    return lambda plan: replace(plan, git_version=version) if plan.git_version is None else plan


def both(*changes: Change) -> Change:
    """One change after the other."""

    def change(plan: Plan) -> Plan:
        for each in changes:
            plan = each(plan)
        return plan

    return change


def _fresh(requirements: Iterable[str], present: set[str]) -> tuple[str, ...]:
    checked = (names.requirement(r) for r in requirements)
    by_name = {names.canonical(r): r for r in reversed([r for r in checked if r is not None])}
    return tuple(r for name, r in reversed(by_name.items()) if name not in present)
