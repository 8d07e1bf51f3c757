"""What an engine begins with that is pushed adapters alone, as seen from outside vLLM's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grpo.rollout.options import ADAPTER_ID, EngineOptions
from verifiers.errors import UserError

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.llm_engine import LLMEngine


def find_adapted_layers(options: EngineOptions) -> list[str]:
    """Layers that pushes bring an adapter for; none where they bring whole weights."""
    if options.adapter is None:
        return []
    from grpo.learner.adapted_layers import read_layers

    return read_layers(options.model, options.adapter.target_modules)


@contextmanager
def naming_the_cure(options: EngineOptions) -> Iterator[None]:
    """Say what can be done about a model for which vLLM has no adapters."""
    try:
        yield
    except ValueError as error:
        if options.adapter is None or "LoRA" not in str(error):
            raise
        raise UserError(f"{error} Push whole weights instead: lora_push=merged.") from error


def begin_adapter(engine: LLMEngine, layers: Sequence[str]) -> LoRARequest:
    """Have an engine serve an adapter that adds nothing, until the first push.

    Every request refers to this one adapter, whose tensors a push replaces in place: so those that
    are in flight go on under the new policy.

    Args:
        engine: With the adapters' extension of its workers.
        layers: As `find_adapted_layers` gives them.

    Raises:
        UserError: vLLM cannot compute an adapter beside all of those layers.
    """
    from vllm.lora.request import LoRARequest

    missing = engine.collective_rpc("begin_adapter", kwargs={"layers": list(layers)})[0]
    if missing:
        raise UserError(
            f"vLLM computes no adapter beside {', '.join(missing[:3])} of this model. Choose other "
            "lora_target_modules, or push whole weights: lora_push=merged."
        )
    # vLLM would read an adapter that it does not have from there.
    return LoRARequest("policy", ADAPTER_ID, "pushed from memory")
