"""What a rank writes into a checkpoint, and reads back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, PreTrainedModel

from verifiers.errors import UserError

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


def save_policy(model: PreTrainedModel, source: str, folder: Path) -> None:
    """Write a model in Hugging Face format, with the tokenizer of the model it came from.

    Args:
        model: The policy; its weights are written as they are, without loss of precision.
        source: Folder or hub id that training started from.
        folder: Where it goes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    if not Path(source).is_dir():
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
        return
    for pattern in SIDE_FILES:
        for path in Path(source).glob(pattern):
            shutil.copyfile(path, folder / path.name)


def load_policy_weights(model: PreTrainedModel, folder: Path) -> None:
    """Read the weights that `save_policy` wrote into a model that already exists.

    Args:
        model: Of the same architecture.
        folder: As given to `save_policy`.

    Raises:
        UserError: If the files are of another model.
    """
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    own = model.state_dict()
    tied = set(own) - set(found)
    wrong = [name for name in found if name not in own or own[name].shape != found[name].shape]
    by_storage = {own[name].data_ptr() for name in found if name in own}
    missing = [name for name in tied if own[name].data_ptr() not in by_storage]
    if wrong or missing:
        raise UserError(
            f"The checkpoint {folder} is of another model than the configuration's: "
            f"{_list(missing, 'not in the checkpoint')}"
            f"{_list(wrong, 'of no such name or shape in the model')}"
            "resume with the model that the run was started from, or start a new run."
        )
    with torch.no_grad():
        for name, tensor in found.items():
            own[name].copy_(tensor)


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


def _list(names: list[str], what: str) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(sorted(names)[:3])}{more} {what}; "
