"""Both backends keep the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.protocols import Sandbox
from ratchet.records import LimitHit, SandboxSpec
from ratchet.sandbox.conformance import SCRIPT, SandboxContract
from ratchet.sandbox.fake import Answer, FakeBackend
from ratchet.sandbox.oci import OciBackend


@pytest.mark.sandbox
class TestOciSandbox(SandboxContract):
    @pytest.fixture(autouse=True)
    def no_layers_stay(self, backend: OciBackend) -> Iterator[None]:
        """The tests' home is kept from run to run, and what is kept by a test is of no use to the next."""
        before = set(backend.layers.ids())
        yield
        for layer in set(backend.layers.ids()) - before:
            backend.layers.remove(layer)


class TestFakeSandbox(SandboxContract):
    @pytest.fixture
    def backend(self) -> FakeBackend:
        return FakeBackend(SCRIPT, layers={"base": {}}, any_layer=False)

    @pytest.fixture
    def base(self) -> str:
        return "base"


def test_a_fake_says_when_its_script_has_no_answer() -> None:
    with FakeBackend().open(SandboxSpec(("base",))) as sandbox:
        result = sandbox.run("make")
    assert result.exit_status == 127
    assert "make" in result.output


def test_a_fake_can_hit_any_limit() -> None:
    backend = FakeBackend({"bomb": Answer(limit=LimitHit.PROCESSES)})
    with backend.open(SandboxSpec(("base",))) as sandbox:
        assert sandbox.run("bomb").limit is LimitHit.PROCESSES


def test_the_first_rule_that_matches_the_whole_command_counts() -> None:
    backend = FakeBackend([("make", Answer("one")), ("make.*", Answer("two")), (".*", Answer("three"))])
    sandbox: Sandbox
    with backend.open(SandboxSpec(("base",))) as sandbox:
        assert [sandbox.run(command).output for command in ("make", "make all", "remake")] == ["one", "two", "three"]
