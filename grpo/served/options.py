"""How a served model is spoken to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Api = Literal["chat", "completions", "vllm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOptions:
    """Address and manners.

    Attributes:
        base_url: Up to and with `/v1`.
        model: As the server calls it.
        api: `chat`: messages, and the server applies its template. `completions`: the prompt as
            text. `vllm`: token ids in and out, as vLLM's server takes them.
        api_key: None for a server that asks for none.
        max_concurrency: Requests under way.
        timeout_s: Of one request, from its start to its last byte.
        max_retries: Further tries of a request that timed out, or that the server was too busy for.
        requests_per_minute: None for no limit.
    """

    base_url: str
    model: str
    api: Api = "chat"
    api_key: str | None = None
    max_concurrency: int = 16
    timeout_s: float = 600.0
    max_retries: int = 5
    requests_per_minute: float | None = None
