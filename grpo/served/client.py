"""Requests to a served model: tried again where that can help, and given up by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx

from grpo.seeding import make_random
from grpo.served.options import ServedOptions
from verifiers.errors import UserError
from verifiers.verdict import Reason

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_MAX_WAIT_S = 60.0
_START_TIMEOUT_S = 20.0


class RequestFailed(Exception):
    """A request that was given up.

    Attributes:
        reason: Its name among the outcomes.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class ServedClient:
    """Posts JSON, from many threads at once.

    Args:
        options: Of the server.
    """

    def __init__(self, options: ServedOptions) -> None:
        key = options.api_key
        self._options = options
        self._http = httpx.Client(
            base_url=options.base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(options.timeout_s, connect=min(30.0, options.timeout_s)),
            limits=httpx.Limits(max_connections=options.max_concurrency),
        )
        self._pace = _Pace(options.requests_per_minute)

    def check(self) -> None:
        """See that the server is there, takes the key and has the model.

        Raises:
            UserError: It is not, does not or has not.
        """
        url, model = self._options.base_url, self._options.model
        try:
            reply = self._http.get("models", timeout=_START_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise UserError(
                f"No server answers at served.base_url={url} ({type(error).__name__}: {error}). "
                "Give the address up to and with /v1, and start the server first."
            ) from None
        if reply.status_code in (401, 403):
            raise UserError(
                f"The server at {url} refuses the key (HTTP {reply.status_code}). Put it into the "
                "environment variable that served.api_key_env names."
            )
        names = _read_names(reply)
        if names and model not in names:
            raise UserError(
                f"The server at {url} has no model {model!r}; it has {', '.join(names[:10])}. Set "
                "served.model."
            )

    def post(self, path: str, body: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Post a request and return the reply.

        Args:
            path: After the base address.
            body: The request.
            seed: Of the waiting times' spread.

        Raises:
            RequestFailed: It was given up.
        """
        random = make_random(seed, "retry")
        for attempt in range(self._options.max_retries + 1):
            self._pace.wait()
            try:
                return self._post_once(path, body)
            except _Retry as error:
                if attempt == self._options.max_retries:
                    tries = f"after {attempt + 1} tries: {error}"
                    raise RequestFailed(error.reason, tries) from None
                backoff = min(_MAX_WAIT_S, 2.0**attempt) * (0.5 + random.random() / 2)
                time.sleep(min(_MAX_WAIT_S, max(backoff, error.wait_s)))
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post_once(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            reply = self._http.post(path, json=body)
        except httpx.TimeoutException as error:
            limit = f"no reply within {self._options.timeout_s:g} s ({type(error).__name__})"
            raise _Retry(Reason.REQUEST_TIMED_OUT, limit) from error
        except httpx.HTTPError as error:
            detail = f"{type(error).__name__}: {error}"
            raise _Retry(Reason.SERVER_FAILED, detail) from error
        if reply.status_code in _RETRIED:
            limited = reply.status_code == httpx.codes.TOO_MANY_REQUESTS
            reason = Reason.RATE_LIMITED if limited else Reason.SERVER_FAILED
            wait_s = _read_seconds(reply.headers.get("retry-after"))
            raise _Retry(reason, f"HTTP {reply.status_code}: {reply.text[:200]}", wait_s)
        if reply.is_error:
            detail = f"HTTP {reply.status_code}: {reply.text[:500]}"
            raise RequestFailed(Reason.REQUEST_REFUSED, detail)
        try:
            found = reply.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RequestFailed(Reason.BAD_REPLY, f"not a JSON object: {reply.text[:200]}")
        return found


class _Retry(Exception):
    def __init__(self, reason: Reason, detail: str, wait_s: float = 0.0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.wait_s = wait_s


class _Pace:
    """Spaces requests evenly, whichever thread makes them."""

    def __init__(self, per_minute: float | None) -> None:
        self._interval_s = 60.0 / per_minute if per_minute else 0.0
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait for the next turn."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._interval_s
        time.sleep(turn - now)


def _read_seconds(header: str | None) -> float:
    """Seconds of a `Retry-After`; its other form, a date, is passed over."""
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0


def _read_names(reply: httpx.Response) -> list[str]:
    """The models that a server lists; none where it does not list any."""
    try:
        return [str(entry["id"]) for entry in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []
