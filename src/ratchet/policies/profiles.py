"""Which model, on which server, and how it is asked: profiles, from the command line or from a TOML file.

    [profiles.big]
    model = "Qwen/Qwen2.5-Coder-32B-Instruct"
    base_url = "https://models.example/v1"
    key_variable = "MODELS_EXAMPLE_KEY"

Keys stay in the environment: a profile says the name of the variable, and a file that holds a key is refused.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from platformdirs import user_config_path

from ratchet.errors import UsageError

_KEY_NAMES = re.compile(r"(^|[_-])(api_?key|key|token|secret|password|authorization|bearer)s?$", re.IGNORECASE)
_OURS = frozenset({"model", "messages", "stream", "tools"})
_ENVIRONMENT = "put the key into the environment, and its variable's name into key_variable (default OPENAI_API_KEY)"


@dataclass(frozen=True)
class Profile:
    """A model and how it is asked.

    `key_variable` names the environment variable with the key; where it is unset a placeholder is sent, which local
    servers take. `context_tokens` None: the server is asked. `max_reply_tokens`, where set, is asked for instead of
    what a policy asks for: models that think first need thousands. `tools` "auto" offers native tool calls until the
    server refuses them. `timeout_s` bounds one try as a whole, `idle_s` the silence in it, also before the first
    token. `attempts` is how often a call is tried. `extra_body` is sent along as it is. `token_ids` asks for token
    ids and log-probabilities. Prices are per million tokens, in any one currency.
    """

    name: str
    model: str
    base_url: str
    key_variable: str = "OPENAI_API_KEY"
    context_tokens: int | None = None
    temperature: float = 0.0
    top_p: float | None = None
    max_reply_tokens: int | None = None
    tools: str = "auto"
    price_per_million_prompt: float | None = None
    price_per_million_completion: float | None = None
    timeout_s: float = 900.0
    idle_s: float = 300.0
    attempts: int = 5
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    token_ids: bool = False

    @property
    def has_prices(self) -> bool:
        return self.price_per_million_prompt is not None and self.price_per_million_completion is not None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What a call costs; None where a price is missing."""
        if self.price_per_million_prompt is None or self.price_per_million_completion is None:
            return None
        prompt, completion = self.price_per_million_prompt, self.price_per_million_completion
        return (prompt_tokens * prompt + completion_tokens * completion) / 1e6


def parse_model(text: str) -> Profile:
    """The profile that `text` means: "openai:MODEL@BASE_URL", or the name of one in the profiles file.

    MODEL may hold "/", ":" and "@". The file is `$RATCHET_PROFILES`, else `profiles.toml` in the user's configuration
    folder of ratchet. Raises `UsageError`, which never repeats a key.
    """
    if not text.startswith("openai:"):
        return _read_profile(profiles_path(), text)
    found = re.fullmatch(r"openai:(.+)@([A-Za-z][A-Za-z0-9+.-]*://.*)", text, re.DOTALL)
    if found is None:
        raise UsageError(
            f"{_without_address(text)} names no model", remedy="write openai:MODEL@BASE_URL, as in " + _EXAMPLE
        )
    if problem := _url_problem(found[2]):
        raise UsageError(f"The base URL of openai:{found[1]} {problem[0]}", remedy=problem[1])
    return Profile(name=found[1], model=found[1], base_url=found[2].rstrip("/"))


_EXAMPLE = "openai:qwen2.5-coder@http://127.0.0.1:8080/v1"


def profiles_path() -> Path:
    given = os.environ.get("RATCHET_PROFILES")
    return Path(given) if given else user_config_path("ratchet") / "profiles.toml"


def _without_address(text: str) -> str:
    """What may be repeated of it: no address, which might hold a password."""
    return text.partition("@")[0][:200]


def _read_profile(path: Path, name: str) -> Profile:
    how = f"add a table [profiles.{name}] with model and base_url to it, or write {_EXAMPLE}"
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("profiles", {})
    except FileNotFoundError:
        what = f"There is no profile {_without_address(name)}: {path} does not exist"
        raise UsageError(what, remedy=f"write {_EXAMPLE}, or make that file with a table [profiles.NAME]") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The profiles in {path} cannot be read: {error}", remedy="check the file") from error
    except tomllib.TOMLDecodeError as error:
        # Not chained: its text may show what stands there.
        raise UsageError(f"{path} is no TOML: {error}", remedy="correct that line") from None
    if not isinstance(tables, dict) or not isinstance(tables.get(name), dict):
        known = ", ".join(sorted(tables)) if isinstance(tables, dict) and tables else "none"
        raise UsageError(f"{path} has no profile {_without_address(name)}; it has: {known}", remedy=how)
    return _checked(tables[name], name, f"{path}, profile {name}")


def _checked(table: dict[str, Any], name: str, where: str) -> Profile:
    _refuse_keys(table, where)
    for wanted in ("model", "base_url"):
        if wanted not in table:
            raise UsageError(f"{where}: {wanted} is missing", remedy="a profile needs model and base_url")
    for key, value in table.items():
        if key not in _FIELDS:
            raise UsageError(f"{where}: there is no field {key}", remedy="the fields are " + ", ".join(_FIELDS))
        fits, expected = _FIELDS[key]
        if not fits(value):
            raise UsageError(f"{where}: {key} has to be {expected}", remedy="correct it")
    if problem := _url_problem(table["base_url"]):
        raise UsageError(f"{where}: base_url {problem[0]}", remedy=problem[1])
    return Profile(name=name, **{**table, "base_url": table["base_url"].rstrip("/")})


def _refuse_keys(table: Mapping[str, Any], where: str) -> None:
    for name, value in table.items():
        if _KEY_NAMES.search(name) and isinstance(value, str):
            raise UsageError(f"{where}: a key does not belong into the file ({name})", remedy=_ENVIRONMENT)
        if isinstance(value, dict):
            _refuse_keys(value, f"{where}, {name}")


def _url_problem(url: str) -> tuple[str, str] | None:
    """What is wrong with a base URL, and the remedy."""
    how = "write it as in http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(url)
        port_fits = parts.port != 0
    except ValueError:
        return "is no URL", how
    if parts.username is not None or parts.password is not None:
        return "holds a user or a password", _ENVIRONMENT
    if parts.scheme not in ("http", "https"):
        return "is not http or https", how
    if not parts.hostname or not port_fits or not re.fullmatch(r"[!-~]+", url):
        return "is no URL", how
    if parts.query or parts.fragment:
        return "has a part after ? or #", how + "; " + _ENVIRONMENT
    return None


def _number(low: float, high: float = math.inf, *, whole: bool = False) -> tuple[Callable[[Any], bool], str]:
    def fits(value: Any) -> bool:
        kinds = int if whole else int | float
        return (
            isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value) and low <= value <= high
        )

    return fits, f"a {'whole ' if whole else ''}number, {low:g} or more" + (f", {high:g} at most" * (high < math.inf))


def _text(pattern: str, expected: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None, expected


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "model": _text(r"[^\x00-\x1f\x7f]{1,500}", "the name of a model"),
    "base_url": _text(r"[^\x00]+", "a URL"),
    "key_variable": _text(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, not a key"),
    "context_tokens": _number(256, whole=True),
    "temperature": _number(0, 10),
    "top_p": _number(0, 1),
    "max_reply_tokens": _number(1, whole=True),
    "tools": _text("auto|on|off", '"auto", "on" or "off"'),
    "price_per_million_prompt": _number(0),
    "price_per_million_completion": _number(0),
    "timeout_s": _number(0.1, 86_400),
    "idle_s": _number(0.1, 86_400),
    "attempts": _number(1, 100, whole=True),
    "extra_body": (
        lambda value: isinstance(value, dict) and _is_json(value) and not _OURS & value.keys(),
        "a table of JSON values without " + ", ".join(sorted(_OURS)),
    ),
    "token_ids": (lambda value: isinstance(value, bool), "true or false"),
}
