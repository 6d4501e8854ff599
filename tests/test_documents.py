"""What a project's documents say about setting it up."""

from __future__ import annotations

from pathlib import Path

from ratchet.autoinstall.documents import setup_notes
from ratchet.records import Checkout


def _notes(folder: Path, most_characters: int = 1500, **files: str) -> str:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return setup_notes(Checkout("id", "name", "source", str(folder)), most_characters)


def test_it_has_the_step_before_the_tests_and_its_command_and_not_the_rest(tmp_path: Path) -> None:
    text = "# thing\n\nA thing that things.\n\nBefore the tests, generate the tables:\n\n    ./make_tables\n\nThanks to all.\n"
    notes = _notes(tmp_path, README__md=text)
    assert "Before the tests" in notes
    assert "./make_tables" in notes
    assert "Thanks" not in notes


def test_it_has_the_targets_of_a_makefile(tmp_path: Path) -> None:
    assert "mkdir samples" in _notes(tmp_path, Makefile="# run once before make test\nsamples:\n\tmkdir samples\n")


def test_it_keeps_within_the_limit(tmp_path: Path) -> None:
    notes = _notes(tmp_path, 300, README__md="Install this first.\n\n" * 1000)
    assert 0 < len(notes) <= 300


def test_a_link_out_of_the_checkout_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("install the secret")
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "README.md").symlink_to(secret)
    assert _notes(folder) == ""
