"""Installs in which a model has a part, whole and in real sandboxes; what the model says is a script."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import unprepared
from ratchet.autoinstall.options import Options, PolicyChoice, Roles
from ratchet.autoinstall.pipeline import autoinstall
from ratchet.autoinstall.workshop import Workshop
from ratchet.policies.budget import Budget, Meter
from ratchet.policies.scripted import ScriptedModel
from ratchet.protocols import Model
from ratchet.records import Environment, Install, Limits, Reason, Reply, Trajectory

pytestmark = pytest.mark.sandbox

LIMITS = Limits(memory_bytes=2 << 30, processes=400, disk_bytes=2 << 30, time_s=300.0)
SUBMIT = "All of it works.\n```submit\n```"


@pytest.fixture(scope="module")
def workshop(home: Path, base: str) -> Iterator[Workshop]:
    with Workshop.open(home) as opened:
        yield opened


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    return unprepared.write(unprepared.GENERATED, tmp_path / "lookup")


def sh(command: str) -> str:
    return f"Next.\n```sh\n{command}\n```"


def options(roles: Roles, meter: Meter | None = None, **more: object) -> Options:
    fixed = {"limits": LIMITS, "base": "bookworm", "fresh": True, "max_attempts": 2, "memory": False}
    return Options(roles=roles, meter=meter or Meter(), **(fixed | more))  # type: ignore[arg-type]


def takeover(model: Model) -> Roles:
    return Roles(builder=PolicyChoice(rules=True, model=model))


def alone(model: Model) -> Roles:
    return Roles(builder=PolicyChoice(rules=False, model=model))


def built(workshop: Workshop, install: Install) -> Environment:
    assert install.environment is not None, (install.reason, install.detail, install.attempts)
    return workshop.store.get("environment", install.environment, Environment)


def commands(environment: Environment) -> str:
    return "\n".join(step.command for step in environment.recipe.steps)


def test_rules_alone_discard_what_only_a_readme_tells(workshop: Workshop, generated: Path) -> None:
    install = autoinstall(str(generated), workshop, options(Roles()))
    assert install.environment is None
    assert install.reason is Reason.TESTS_FAILED


def test_a_model_goes_on_where_the_rules_gave_up(workshop: Workshop, generated: Path) -> None:
    meter = Meter()
    answer = sh("python tools/make_tables.py")
    sampled = Reply(answer, prompt_tokens=9, completion_tokens=2, token_ids=(5, 6), logprobs=(-0.1, -0.2))
    model = ScriptedModel(["What?", sh("cat README.md"), SUBMIT, sampled, SUBMIT], meter=meter)
    install = autoinstall(str(generated), workshop, options(takeover(model), meter, model_steps=4))
    environment = built(workshop, install)
    assert "python tools/make_tables.py" in commands(environment)
    assert "README" not in commands(environment), "what changed nothing is not in the recipe"
    assert environment.generation == "goals rules, builder rules+scripted"

    first, after_submission = model.prompts[0][-1].content, model.prompts[3][-1].content
    assert "tests/test_lookup.py" in first, "it is told what failed"
    held_out = [goal.command for goal in install.goals if goal.id not in install.targets]
    assert not any(command in first for command in held_out), "it is told of nothing but the targets"
    assert "letter_tables" in after_submission, "a submission that does not hold is answered with what failed"

    kept = workshop.store.get("trajectory", install.attempts[-1].trajectory, Trajectory)
    exchanges = [exchange for step in kept.steps for exchange in step.action.exchanges]
    assert [bool(exchange.problem) for exchange in exchanges] == [True, False, False, False, False]
    assert exchanges[3].reply == sampled
    assert (kept.role, kept.policy) == ("builder", "rules+scripted")
    assert install.usage["construction"].calls == len(exchanges)


def test_a_model_builds_alone_and_what_did_not_matter_is_dropped(workshop: Workshop, generated: Path) -> None:
    useless = [sh("touch /opt/nothing"), sh("false > /opt/failed"), sh("rm -r lookup"), "Oh.\n```rollback\n```"]
    steps = [sh("pip install -q -e . pytest"), *useless, sh("python tools/make_tables.py"), SUBMIT]
    environment = built(workshop, autoinstall(str(generated), workshop, options(alone(ScriptedModel(steps)))))
    assert "make_tables" in commands(environment)
    assert "pip install" in commands(environment)
    assert not any(word in commands(environment) for word in ("/opt/nothing", "/opt/failed", "rm -r"))


def test_what_a_model_did_counts_and_not_whether_it_said_so(workshop: Workshop, generated: Path) -> None:
    lost = ScriptedModel([sh("python tools/make_tables.py"), *[sh("ls")] * 4])
    built(workshop, autoinstall(str(generated), workshop, options(takeover(lost))))


def test_a_service_is_started_as_root_before_every_goal(workshop: Workshop, tmp_path: Path) -> None:
    files = dict(unprepared.GENERATED)
    files["tests/test_lookup.py"] = (
        "import urllib.request\n\nimport pytest\n\n\n@pytest.mark.parametrize('n', range(4))\ndef test_service(n):\n"
        "    assert urllib.request.urlopen('http://127.0.0.1:8765/README.md').status == 200\n"
    )
    source = unprepared.write(files, tmp_path / "served")
    script = (
        "#!/bin/sh\necho root alone can do this >/run/served || exit 1\ncd /workspace\nnohup python3 -m http.server -b 127.0.0.1 8765 >/tmp/log 2>&1 &\n"
        "for n in 1 2 3 4 5 6 7 8 9; do grep -q Serving /tmp/log && exit; sleep 1; done\n"
    )
    start = f"It needs a server.\n```write /opt/ratchet/start\n{script}```"
    model = ScriptedModel(
        [start.replace("nohup python3", "nohup python3 -u"), sh("chmod +x /opt/ratchet/start"), SUBMIT]
    )
    environment = built(workshop, autoinstall(str(source), workshop, options(takeover(model))))
    assert environment.recipe.start == "/opt/ratchet/start"
    assert any(s.name == "stop the services" and s.noticed_by for s in environment.audit.sabotages)


def test_a_model_that_fails_leaves_lessons_to_the_next_attempt(workshop: Workshop, generated: Path) -> None:
    cannot = "I give up.\n```submit\ncannot: the tables are missing\n```"
    model = ScriptedModel([cannot, cannot])
    install = autoinstall(str(generated), workshop, options(alone(model)))
    assert (install.reason, len(install.attempts)) == (Reason.POLICY_GAVE_UP, 2)
    assert "the tables are missing" in model.prompts[1][-1].content


def test_a_spent_budget_stops_cleanly_and_more_goes_on_from_there(workshop: Workshop, generated: Path) -> None:
    (generated / "only-here").write_text(uuid.uuid4().hex)  # so that no earlier install of it can be used
    work = [sh("python tools/make_tables.py"), SUBMIT]
    small = Meter(Budget(tokens=10))
    first = ScriptedModel(work, meter=small)
    install = autoinstall(str(generated), workshop, options(takeover(first), small))
    assert install.reason is Reason.BUDGET_SPENT
    assert install.usage["construction"].calls == 1
    large = Meter()
    second = ScriptedModel(work[1:], meter=large)
    install = autoinstall(str(generated), workshop, options(takeover(second), large, fresh=False))
    built(workshop, install)
    assert install.usage["construction"].calls == 2, "with what the first run took"
    assert len(second.prompts) == 1, "what was answered is not asked again"
