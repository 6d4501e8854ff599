"""What goes wrong between us and a server of a model: what may be tried again, when, and what the reader is told."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ratchet.errors import ContextOverflowError, ModelServerError, RatchetError

LONGEST_WAIT_S = 120.0
_GOES_ON = "the same command then goes on where it stopped"

# The wordings of OpenAI, vLLM, SGLang, llama.cpp, Ollama, LM Studio, TGI, Anthropic, Gemini, Mistral, Groq and xAI.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (?:context|model|prompt) length|context (?:window|limit)"
    r"|exceeds? (?:the )?(?:model's )?(?:maximum |available )?context|context size|context length|context the overflows"
    r"|(?:prompt|input) is too long|too many (?:input )?tokens|too large for model|maximum number of tokens"
    r"|reduce the length|tokens. must be <=|longer than the (?:maximum )?model",
    re.IGNORECASE,
)
# Parts of a request that some servers refuse, and the words in which they do.
_REFUSALS = (
    ("usage", re.compile(r"stream_options|include_usage")),
    ("max_tokens", re.compile(r"max_completion_tokens")),
    ("temperature", re.compile(r"temperature|top_p")),
    ("stream", re.compile(r"\bstream(?:ing|ed)?\b", re.IGNORECASE)),
    ("token_ids", re.compile(r"token_ids")),
    ("logprobs", re.compile(r"log_?prob", re.IGNORECASE)),
    ("tools", re.compile(r"\btools?\b|tool_choice|tool-call|\bfunctions?\b|jinja", re.IGNORECASE)),
)
_UNSUPPORTED = re.compile(r"jinja|support|requires?\b|not allowed|unknown|unexpected", re.IGNORECASE)


class TransientError(Exception):
    """One try that failed and may be made again. `wait_s` is how long the server asks us to wait, `remedy` what the
    reader can do about it when it stays so."""

    def __init__(self, what: str, *, wait_s: float | None = None, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.wait_s = wait_s
        self.remedy = remedy or f"look into the server's log, or try again later; {_GOES_ON}"


@dataclass(eq=False)
class StatusError(Exception):
    """The server answered with an error. `status` is None where it sent one in a stream, without a number."""

    status: int | None
    message: str
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_body(
        cls, body: object, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> StatusError:
        """Reads the usual shapes: {"error": {"message"}}, {"error": text}, {"message"}, {"detail"}, any text."""
        error: Any = body.get("error") or body if isinstance(body, dict) else body
        code: object = ""
        if isinstance(error, dict):
            code = f"{error.get('code') or ''} {error.get('type') or ''}".strip()
            given = error.get("code")
            if status is None and isinstance(given, int) and 400 <= given < 600:
                status = given
            error = error.get("message") or error.get("detail") or error
        message = error if isinstance(error, str) else json.dumps(error, default=str)
        return cls(status, " ".join(message[:2000].split()), str(code)[:200], headers or {})

    def is_overflow(self) -> bool:
        if self.status not in (None, 400, 413, 422, 500):
            return False
        return self.status == 413 or _OVERFLOW.search(f"{self.code} {self.message}") is not None

    def refused(self, offered: set[str]) -> set[str]:
        """What of `offered` the server will not have; empty where the error is about something else."""
        if self.status not in (400, 404, 422, 500, 501):
            return set()
        text = self.message[:600]
        if self.status >= 500 and not _UNSUPPORTED.search(text):
            return set()
        for part, words in _REFUSALS:
            if part in offered and words.search(text):
                return {part}
        # Not everybody says what it was; what nobody needs to understand goes first.
        return offered & {"token_ids", "logprobs"} if self.status in (400, 422) else set()

    def to_error(self, url: str, model: str, key: str) -> RatchetError | TransientError:
        """What it means for the caller: a `TransientError` where trying again may help. `key` is left out."""
        said = f": {scrubbed(self.message, key)[:300]}" if self.message else ""
        if self.is_overflow():
            return ContextOverflowError(f"The prompt is too long for {model} at {url}{said}")
        if "insufficient_quota" in self.code:
            what = f"{url} refuses {model}: the account's quota is used up{said}"
            return ModelServerError(what, remedy=f"add credit, or use another model; {_GOES_ON}")
        if self.status is None or self.status in (408, 409, 425, 429) or (self.status >= 500 and self.status != 501):
            number = f"status {self.status}" if self.status else "an error"
            return TransientError(f"answered with {number}{said}", wait_s=asked_wait(self.headers, datetime.now(UTC)))
        return ModelServerError(
            f"{url} refuses to answer as {model} (status {self.status}){said}", remedy=_remedy(self.status)
        )


def _remedy(status: int) -> str:
    if status in (401, 403):
        return f"set the key in the environment (the profile's key_variable, default OPENAI_API_KEY); {_GOES_ON}"
    if status == 404:
        return f"check the URL (most end in /v1) and the name of the model; {_GOES_ON}"
    return "check the model and the profile (tools, extra_body, token_ids): the server does not take the request"


_SLOW = "let it have more time (timeout_s and idle_s in a profile), or use a faster model or server"


def connection_fault(error: Exception, silence_s: float) -> TransientError:
    """What an error of the connection means; `silence_s` is how long we were ready to hear nothing."""
    import httpx2

    cause = error if isinstance(error, httpx2.RequestError) else error.__cause__
    start = f"start it (a GGUF file: ratchet serve MODEL.gguf) or check the URL; {_GOES_ON}"
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
        return TransientError(f"cannot be reached: {str(cause)[:200] or 'no answer'}", remedy=start)
    if isinstance(cause, httpx2.TimeoutException):
        return TransientError(f"sent nothing for {silence_s:g} s", remedy=_SLOW)
    return TransientError(f"broke the connection: {cause or error}", remedy=start)


def until(deadline: float, chunks: Iterable[bytes], timeout_s: float) -> Iterator[bytes]:
    """The chunks, as long as `time.monotonic()` is not beyond `deadline`, which is `timeout_s` after the start."""
    for chunk in chunks:
        yield chunk
        if time.monotonic() > deadline:
            raise TransientError(f"did not end its reply within {timeout_s:g} s", remedy=_SLOW)


def asked_wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """How long a server asks us to wait, in seconds, LONGEST_WAIT_S at most; None where it does not say."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    waits = [_seconds(lower.get("retry-after-ms", ""), now, unit=0.001), _seconds(lower.get("retry-after", ""), now)]
    if not any(wait is not None for wait in waits):
        waits = [
            _seconds(value, now)
            for name, value in lower.items()
            if "ratelimit" in name and "reset" in name and _used_up(lower, name)
        ]
    known = [wait for wait in waits if wait is not None]
    return min(max(0.0, *known, 0.0), LONGEST_WAIT_S) if known else None


def _used_up(headers: Mapping[str, str], reset: str) -> bool:
    """Whether nothing remains of what resets: other limits are reset at their own times."""
    return headers.get(reset.replace("reset", "remaining"), "0") == "0"


_SPAN = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9})ms)?")


def _seconds(text: str, now: datetime, unit: float = 1.0) -> float | None:
    """From "7", "6m0s", "120ms", a time since 1970, or a date of HTTP or ISO 8601."""
    if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text):
        number = float(text) * unit
        if number > 1e12:
            number /= 1000
        return number - now.timestamp() if number > 1e9 else number
    if text and (span := _SPAN.fullmatch(text)):
        days, hours, minutes, seconds, thousandths = (float(part or 0) for part in span.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds + thousandths / 1000
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = parse(text)
            return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds()
        except (ValueError, OverflowError):
            continue
    return None


def scrubbed(text: str, key: str) -> str:
    """`text` without the key, which some servers repeat, and without what looks like one."""
    if len(key) >= 4:
        text = text.replace(key, "[key]")
    return re.sub(r"\b(?:sk|pk|gsk|hf|xai)[-_][A-Za-z0-9*_-]{6,}|(?i:bearer)\s+[^\s\"']{6,}", "[key]", text)
