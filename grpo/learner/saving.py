"""The policy as a Hugging Face model on disk, and the state of the random generators."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

# Copied beside the weights just as they came: what a tokenizer's own save writes may differ from
# what it read.
SIDE_FILES = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "spiece.model",
    "*.tiktoken",
    "generation_config.json",
)


def save_policy(
    model: PreTrainedModel, weights: Mapping[str, torch.Tensor], source: str, folder: Path
) -> None:
    """Write a policy in Hugging Face format, with the tokenizer of the model it came from.

    Args:
        model: Of the policy's kind.
        weights: Whole, under Hugging Face's names; written as they are.
        source: Folder or hub id that training started from.
        folder: Where it goes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=dict(weights))
    if not Path(source).is_dir():
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
        return
    for pattern in SIDE_FILES:
        for path in Path(source).glob(pattern):
            shutil.copyfile(path, folder / path.name)


def capture_random_state() -> dict[str, Any]:
    """Take the state of the generators that a model may draw from, in values safe to read back."""
    return {
        "python": random.getstate(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put back what `capture_random_state` took."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
