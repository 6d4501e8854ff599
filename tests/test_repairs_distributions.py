"""From an import name to the distribution that provides it."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ratchet.policies.rules.distributions import DISTRIBUTIONS, declared_requirement, provides, requirement_for
from ratchet.records import Fact, Survey


@pytest.mark.parametrize(
    ("module", "requirement"),
    [
        ("yaml", "PyYAML"),
        ("cv2", "opencv-python-headless"),
        ("Crypto.Cipher", "pycryptodome"),
        ("google.protobuf.message", "protobuf"),
        ("google.cloud.storage", "google-cloud-storage"),
        ("google.unheard_of", "google-unheard-of"),
        ("mpl_toolkits.mplot3d", "matplotlib"),
        ("ruamel.yaml.comments", "ruamel.yaml"),
        ("zope.interface", "zope.interface"),
        ("pkg_resources", "setuptools<81"),
        ("some_module.part", "some-module"),
    ],
)
def test_a_module_comes_with_its_distribution(module: str, requirement: str) -> None:
    assert requirement_for(module) == requirement


def test_the_table_holds_the_differences_and_only_valid_requirements() -> None:
    names = {module: canonicalize_name(Requirement(text).name) for module, text in DISTRIBUTIONS.items()}
    assert sum(name != canonicalize_name(module) for module, name in names.items()) >= 200
    assert all(provides(name, module) for module, name in names.items())


def test_a_declared_requirement_wins_with_its_bounds() -> None:
    facts = (
        Fact("requirement", "requests", "setup.py"),
        Fact("group-requirement", "opencv-contrib-python>=4; python_version>'3'", "tox.ini", 3, "tox:py"),
    )
    survey = Survey("id", facts)
    assert declared_requirement(survey, "cv2") == facts[1].value
    assert declared_requirement(survey, "requests.adapters") == "requests"
    assert declared_requirement(survey, "yaml") is None


@pytest.mark.parametrize(
    ("distribution", "module"), [("yaml-linter", "yaml"), ("google", "google.protobuf"), ("x", "y")]
)
def test_a_like_name_is_not_taken_for_the_distribution(distribution: str, module: str) -> None:
    assert not provides(distribution, module)
