"""Which layers of a model have an adapter beside them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from grpo.learner.selecting import select_names


def choose_layers(model: PreTrainedModel, patterns: Sequence[str]) -> list[str]:
    """Names of the linear layers that get an adapter; the output layer never does.

    Args:
        model: Without adapters.
        patterns: As of `grpo.learner.selecting`; none means every linear layer.

    Raises:
        UserError: A pattern matches no linear layer.
    """
    head = model.get_output_embeddings()
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    ]
    return select_names(linear, patterns or ("*",), option="lora_target_modules")


def read_layers(model: str, patterns: Sequence[str]) -> list[str]:
    """As `choose_layers`, from a model's configuration: no weight is loaded.

    Args:
        model: What `from_pretrained` takes.
        patterns: As above.
    """
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    return choose_layers(empty, patterns)
