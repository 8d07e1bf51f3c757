"""Whether samples share a row without padding, and what a model needs for that."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

from grpo.learner.options import LearnerOptions


def packs_samples(options: LearnerOptions) -> bool:
    """Whether micro-batches are packed.

    A row of T tokens costs T^2 in attention unless its kernel skips what is masked, as
    flash-attention does; `auto` packs where that is installed and can be used.
    """
    if options.packing == "auto":
        return has_flash_attention(options)
    return options.packing == "on"


def has_flash_attention(options: LearnerOptions) -> bool:
    """Whether passes can use flash-attention: it wants a GPU and half precision."""
    gpu = torch.cuda.is_available() and not options.use_cpu
    return gpu and options.precision == "bfloat16" and is_flash_attn_2_available()


def use_fastest_attention(model: PreTrainedModel, options: LearnerOptions) -> None:
    """Have a model that is given packed rows compute them with flash-attention, where there is one.

    Elsewhere it masks the pairs of different samples.
    """
    if has_flash_attention(options):
        model.set_attn_implementation("flash_attention_2")
