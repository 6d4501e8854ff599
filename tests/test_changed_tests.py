"""Which recipes change a checkout's tests, as their layers show it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.autoinstall.verify import changed_tests
from ratchet.records import Checkout, Fact, Survey

pytestmark = pytest.mark.sandbox  # what hides a folder's content is an attribute that root alone can set


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    (root / "tests").mkdir(parents=True)
    (root / "tests/test_a.py").write_text("assert x")
    (root / "conftest.py").symlink_to("../missing")
    return Checkout("id", "shop", "shop", str(root))


SURVEY = Survey("id", (Fact("test-count", "3", "tests/test_a.py"),))


def test_a_test_folder_that_was_made_anew_is_changed(tmp_path: Path, checkout: Checkout) -> None:
    tests = tmp_path / "layer/workspace/tests"
    tests.mkdir(parents=True)
    assert changed_tests(tmp_path / "layer", checkout, SURVEY) == ()
    os.setxattr(tests, "trusted.overlay.opaque", b"y")
    assert changed_tests(tmp_path / "layer", checkout, SURVEY) == ("tests/test_a.py",)


def test_a_file_in_the_place_of_a_link_is_changed_and_the_link_is_not_followed(
    tmp_path: Path, checkout: Checkout
) -> None:
    (tmp_path / "layer/workspace").mkdir(parents=True)
    (tmp_path / "layer/workspace/conftest.py").write_text("")
    assert changed_tests(tmp_path / "layer", checkout, SURVEY) == ("conftest.py",)
