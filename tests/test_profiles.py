"""Which model is meant: on the command line, and in the file with profiles."""

from __future__ import annotations

import threading
from dataclasses import fields
from pathlib import Path

import pytest

from ratchet.errors import BudgetSpentError, UsageError
from ratchet.policies import profiles
from ratchet.policies.budget import Budget, Meter, require_prices
from ratchet.policies.profiles import Profile, parse_model
from ratchet.records import Reply, Usage

SECRET = "sk-0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.toml"
    monkeypatch.setenv("RATCHET_PROFILES", str(path))
    return path


# --------------------------------------------------------------------------- openai:MODEL@BASE_URL


@pytest.mark.parametrize(
    ("text", "model", "url"),
    [
        ("openai:qwen@http://127.0.0.1:8080/v1", "qwen", "http://127.0.0.1:8080/v1"),
        ("openai:Qwen/Qwen2.5:7b@q4@https://h.example/v1/", "Qwen/Qwen2.5:7b@q4", "https://h.example/v1"),
        ("openai:m@http://[::1]:8080", "m", "http://[::1]:8080"),
        ("openai:a@http://b@http://h/v1", "a@http://b", "http://h/v1"),
    ],
)
def test_a_model_and_its_server_are_told_apart(text: str, model: str, url: str) -> None:
    profile = parse_model(text)
    assert (profile.model, profile.base_url) == (model, url)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("openai:qwen", "names no model"),
        ("openai:@http://h/v1", "names no model"),
        ("openai:m@h/v1", "names no model"),
        ("openai:m@ftp://h/v1", "not http"),
        ("openai:m@http://", "no URL"),
        ("openai:m@http://h:port/v1", "no URL"),
        ("openai:m@http://h h/v1", "no URL"),
        ("openai:m@http://[::1/v1", "no URL"),
        (f"openai:m@https://user:{SECRET}@h/v1", "user or a password"),
        (f"openai:m@https://{SECRET}@h/v1", "user or a password"),
        (f"openai:m@https://h/v1?api_key={SECRET}", r"after \? or #"),
        (f"openai:m@{SECRET}@h/v1", "names no model"),
    ],
)
def test_what_names_no_server_is_refused_without_repeating_a_key(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_model(text)
    assert SECRET not in str(caught.value)
    assert caught.value.remedy


# --------------------------------------------------------------------------- the file


def test_a_profile_is_read_from_the_file(file: Path) -> None:
    file.write_text(
        '[profiles.big]\nmodel = "org/big"\nbase_url = "https://h.example/v1/"\nkey_variable = "BIG_KEY"\n'
        'temperature = 1\ntools = "off"\nprice_per_million_prompt = 0.5\nprice_per_million_completion = 2\n'
        'extra_body = {reasoning_effort = "low", stop = ["x"]}\ntoken_ids = true\n[profiles.other]\n'
    )
    assert parse_model("big") == Profile(
        name="big",
        model="org/big",
        base_url="https://h.example/v1",
        key_variable="BIG_KEY",
        temperature=1,
        tools="off",
        price_per_million_prompt=0.5,
        price_per_million_completion=2,
        extra_body={"reasoning_effort": "low", "stop": ["x"]},
        token_ids=True,
    )


def test_without_a_variable_the_file_lies_with_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RATCHET_PROFILES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "ratchet").mkdir()
    (tmp_path / "ratchet/profiles.toml").write_text('[profiles.a]\nmodel = "m"\nbase_url = "http://h/v1"\n')
    assert parse_model("a").model == "m"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("contxt_tokens = 8192", "contxt_tokens"),
        ('context_tokens = "8192"', "context_tokens"),
        ("context_tokens = true", "context_tokens"),
        ("context_tokens = 8192.5", "context_tokens"),
        ("temperature = nan", "temperature"),
        ("timeout_s = inf", "timeout_s"),
        ("attempts = 0", "attempts"),
        ('tools = "maybe"', "tools"),
        ("token_ids = 1", "token_ids"),
        ("price_per_million_prompt = -1", "price_per_million_prompt"),
        ("extra_body = {messages = []}", "extra_body"),
        ("extra_body = {day = 2026-01-01}", "extra_body"),
        (f'key_variable = "{SECRET}"', "key_variable"),
        ('model = ""', "model"),
        ("name = 'x'", "name"),
        (f'base_url = "https://u:{SECRET}@h/v1"', "base_url"),
    ],
)
def test_a_wrong_field_is_named_with_its_file_and_profile(file: Path, line: str, field: str) -> None:
    given = {"model": 'model = "m"', "base_url": 'base_url = "http://h/v1"', field: line}
    file.write_text("[profiles.mine]\n" + "\n".join(given.values()) + "\n")
    with pytest.raises(UsageError) as caught:
        parse_model("mine")
    assert all(part in caught.value.what for part in (str(file), "mine", field))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [f'{name} = "{SECRET}"' for name in ("api_key", "key", "apikey", "OPENAI_API_KEY", "token", "Authorization")]
    + [f'extra_body = {{api_key = "{SECRET}"}}', f'headers = {{Authorization = "Bearer {SECRET}"}}'],
)
def test_a_key_in_the_file_is_refused_unseen(file: Path, line: str) -> None:
    file.write_text(f'[profiles.mine]\nmodel = "m"\nbase_url = "http://h/v1"\n{line}\n')
    with pytest.raises(UsageError, match="a key does not belong") as caught:
        parse_model("mine")
    assert "environment" in caught.value.remedy
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"[profiles.a\n", "is no TOML"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "it has: none"),
        (b"profiles = 3\n", "it has: none"),
        (b"[profiles.b]\n[profiles.a]\n", "it has: a, b"),
        (b"[profiles]\nmine = 3\n", "it has: mine"),
        (b"[profiles.mine]\nmodel = 'm'\n", "base_url is missing"),
    ],
)
def test_a_profile_that_is_not_there_is_an_error_that_says_what_is(
    file: Path, content: bytes | None, said: str
) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        parse_model("mine")
    assert str(file) in caught.value.what


def test_every_field_of_a_profile_can_be_written() -> None:
    assert {field.name for field in fields(Profile)} == {"name", *profiles._FIELDS}


# --------------------------------------------------------------------------- prices and budgets


def test_a_limit_on_the_cost_needs_prices() -> None:
    free = Profile("mine", "m", "http://h/v1", price_per_million_prompt=0, price_per_million_completion=0)
    unpriced = Profile("yours", "m", "http://h/v1", price_per_million_prompt=1)
    require_prices(Budget(cost=1.0), free)
    require_prices(Budget(tokens=1), unpriced)
    with pytest.raises(UsageError, match="yours has no prices"):
        require_prices(Budget(cost=1.0), free, unpriced)


def test_what_an_earlier_process_spent_counts() -> None:
    meter = Meter(Budget(tokens=100), {"goals": Usage(1, 90, 10)})
    assert meter.left_tokens == 0
    with pytest.raises(BudgetSpentError, match="100 were used"):
        meter.check()


def test_threads_share_a_meter() -> None:
    meter = Meter()
    reply = Reply("", prompt_tokens=1)
    threads = [threading.Thread(target=lambda: [meter.add("s", reply) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.usage["s"] == Usage(2000, 2000)
    assert meter.left_tokens is None
