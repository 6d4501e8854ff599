"""From facts to the first plan, and from a failed plan to the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ratchet.policies.rules import planning
from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.planning import Lesson, first_plan, next_plan, rank_pythons
from ratchet.policies.rules.versions import first_version
from ratchet.records import Checkout, Fact, Reason, Survey

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PYTHONS = ("3.9", "3.11", "3.13")


def survey(*facts: tuple[str, str] | tuple[str, str, str]) -> Survey:
    name = Fact("project-name", "project", "pyproject.toml")
    return Survey("c", (name, *(Fact(f[0], f[1], "pyproject.toml", 1, f[2] if len(f) > 2 else "") for f in facts)))


def checkout(date: str | None = "2026-11-01T00:00:00+00:00") -> Checkout:
    return Checkout("c", "project", "source", "/nowhere", date=date)


@pytest.mark.parametrize(
    ("facts", "date", "first"),
    [
        ((), "2026-11-01", "3.11"),
        ((("requires-python", ">=3.12"),), "2026-11-01", "3.13"),
        ((("requires-python", "<3.10"),), "2026-11-01", "3.9"),
        ((("python-classifier", "3.13"), ("python-classifier", "3.12")), "2026-11-01", "3.13"),
        ((), "2021-06-01", "3.9"),
        ((("requires-python", ">=3.11.4"),), "2026-11-01", "3.11"),
        ((("requires-python", "no specifier"),), "2026-11-01", "3.11"),
    ],
)
def test_the_python_fits_what_the_project_says_and_when(facts: tuple[tuple[str, str]], date: str, first: str) -> None:
    assert rank_pythons(survey(*facts), checkout(date), PYTHONS)[0] == first


def test_no_base_has_a_python_that_the_project_allows() -> None:
    assert first_plan(survey(("requires-python", ">=3.15")), checkout(), PYTHONS, NOW) is None


@pytest.mark.parametrize(
    "group",
    ["extra:test", "extra:tests", "group:testing", "tox:testenv", "tox:py311", "nox:tests", "file:requirements/test.txt",
     "file:test-requirements.txt", "file:requirements-test.txt", "file:tests/requirements.txt", "setup.py", "hatch:hatch-test",
     "file:requirements/test.in", "extra:dev", "file:requirements-dev.txt", "file:dev-requirements.txt", "ci:tests", "readme"],
)  # fmt: skip
def test_test_requirements_are_found_wherever_they_live(group: str) -> None:
    found = planning.test_requirements(survey(("group-requirement", "freezegun>=1", group)))
    assert set(found) == {"freezegun>=1", "pytest"}


@pytest.mark.parametrize(
    "group", ["group:docs", "extra:docs", "tox:docs", "tox:lint", "nox:docs", "file:requirements/docs.txt"]
)
def test_what_is_not_for_tests_stays_out(group: str) -> None:
    assert planning.test_requirements(survey(("group-requirement", "sphinx-design", group))) == ("pytest",)


def test_the_source_of_a_compiled_requirements_file_wins() -> None:
    found = planning.test_requirements(
        survey(
            ("group-requirement", "trustme==0.4.0", "file:requirements/test.txt"),
            ("group-requirement", "trustme", "file:requirements/test.in"),
        )
    )
    assert "trustme" in found


def test_dev_requirements_are_not_taken_where_there_are_test_requirements() -> None:
    found = planning.test_requirements(
        survey(("group-requirement", "mock", "extra:test"), ("group-requirement", "ipdb", "extra:dev"))
    )
    assert "ipdb" not in found


def test_an_old_checkout_is_resolved_as_of_its_date_and_a_new_one_as_of_now() -> None:
    old = first_plan(survey(), checkout("2023-02-03T04:05:06+00:00"), PYTHONS, NOW)
    new = first_plan(survey(), checkout("2026-10-30T00:00:00+00:00"), PYTHONS, NOW)
    assert old is not None
    assert new is not None
    assert old.exclude_newer == "2023-02-03T04:05:06Z"
    assert new.exclude_newer == "2026-11-30T00:00:00Z"


def test_each_further_plan_differs_from_all_before_and_they_come_to_an_end() -> None:
    lessons: list[Lesson] = []
    seen = set()
    while (plan := next_plan(survey(), checkout("2023-02-03"), PYTHONS, NOW, lessons)) is not None:
        assert (plan.python, plan.exclude_newer, plan.requirements) not in seen
        seen.add((plan.python, plan.exclude_newer, plan.requirements))
        lessons.append(Lesson(plan, Reason.TESTS_FAILED, ""))
        assert len(lessons) < 20
    assert {python for python, _, _ in seen} == set(PYTHONS)


def test_what_no_plan_can_change_ends_the_attempts() -> None:
    plan = first_plan(survey(), checkout(), PYTHONS, NOW)
    assert plan is not None
    assert next_plan(survey(), checkout(), PYTHONS, NOW, [Lesson(plan, Reason.BROKEN_BUILD_SCRIPT, "")]) is None


def test_debian_packages_that_were_found_missing_are_in_the_next_plan() -> None:
    plan = first_plan(survey(), checkout("2023-02-03"), PYTHONS, NOW)
    assert plan is not None
    learnt = Lesson(Plan(**{**vars(plan), "debian": ("libffi-dev",)}), Reason.TESTS_FAILED, "")
    following = next_plan(survey(), checkout("2023-02-03"), PYTHONS, NOW, [learnt])
    assert following is not None
    assert following.debian == ("libffi-dev",)


def test_a_version_from_git_metadata_is_told_by_variables() -> None:
    facts = survey(("version-source", "setuptools-scm"), ("project-version", "1.2.3"))
    plan = first_plan(facts, checkout(), PYTHONS, NOW)
    assert plan is not None
    assert plan.env == {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_PROJECT": "1.2.3"}
    tagged = first_plan(facts, replace(checkout(), version="v2.0-3-gabc"), PYTHONS, NOW)
    assert tagged is not None
    assert tagged.env["SETUPTOOLS_SCM_PRETEND_VERSION_FOR_PROJECT"] == "2.0.post3"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.2.3", "1.2.3"), ("v1.2", "1.2"), ("v1.2-3-gabc123", "1.2.post3"), ("v1.2-3-gabc123-dirty", "1.2.post3"),
        ("release-2.0", "2.0"), ("1.0rc1-2-gab", "1.0rc1.post2"), ("nightly", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_what_git_describes_becomes_a_version(text: str | None, version: str | None) -> None:
    assert first_version([text]) == version


def test_a_python_that_an_attempt_turned_out_to_need_gets_a_base_of_its_own_once() -> None:
    first = first_plan(survey(), checkout(), PYTHONS, NOW)
    assert first is not None
    switched = replace(first, python="3.13", debian=("libffi-dev",))
    lessons = [Lesson(switched, Reason.PYTHON_UNAVAILABLE, "the base has no such Python")]
    assert next_plan(survey(), checkout(), PYTHONS, NOW, lessons) == switched
    lessons.append(Lesson(switched, Reason.PYTHON_UNAVAILABLE, "no such Python"))
    following = next_plan(survey(), checkout(), PYTHONS, NOW, lessons)
    assert following is not None
    assert following.python != "3.13"


def test_libraries_that_the_docs_name_are_for_compiled_projects() -> None:
    named = [
        ("system-package", name) for name in ("libtiff5-dev", "python3-dev", "cmake", "python3-tk", "bad;name-dev")
    ]
    plain = first_plan(survey(*named), checkout(), PYTHONS, NOW)
    compiled = first_plan(survey(("extension-module", "project._c"), *named), checkout(), PYTHONS, NOW)
    assert plain is not None
    assert compiled is not None
    assert plain.documented_debian == ()
    assert compiled.documented_debian == ("libtiff5-dev", "python3-tk")
