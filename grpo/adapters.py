"""A LoRA adapter merged into its base model, as a folder that any engine loads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo.paths import find_model
from verifiers.errors import UserError

ADAPTER_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
# Trainers that changed the tokenizer or its template save them beside the adapter.
_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*")
_TOKENIZER += ("vocab.*", "merges.txt")
# What changes the arithmetic, and the value with which it does not.
_PLAIN = {"peft_type": "LORA", "fan_in_fan_out": False, "use_dora": False, "bias": "none"}


def merge_adapter(folder: Path) -> Path:
    """Merge an adapter, as peft saves it, into its base.

    A tokenizer or a chat template beside the adapter takes the place of the base's. The merged
    model is kept in the cache (`VERIGRAD_CACHE`, by default `~/.cache/verigrad`) until the adapter
    or its base changes, so that a second call finds it.

    Args:
        folder: With `adapter_config.json` and `adapter_model.safetensors`.

    Returns:
        The merged model's folder.

    Raises:
        UserError: The adapter is of a kind that is not a plain LoRA, or does not fit its base.
    """
    config = _read_config(folder)
    weights = folder / _WEIGHTS
    if not weights.is_file():
        raise UserError(f"The adapter {folder} has no {_WEIGHTS}.")
    base = _find_base(config, folder)
    merged = _cache() / "merged" / _name(folder, base)
    if merged.is_dir():
        return merged
    partial = merged.with_name(f".{merged.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write_merged(base, weights, config, partial)
        for file in _find_tokenizer(folder):
            shutil.copyfile(file, partial / file.name)
        partial.rename(merged)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return merged


def _read_config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    odd = {name: config[name] for name, value in _PLAIN.items() if config.get(name, value) != value}
    odd |= {name: config[name] for name in ("modules_to_save",) if config.get(name)}
    if odd:
        raise UserError(
            f"The adapter {folder} is no plain LoRA ({odd}), which is all that is merged here; "
            "merge it with peft's merge_and_unload(), and give the folder that it saves."
        )
    return config


def _find_base(config: Mapping[str, Any], folder: Path) -> Path:
    name = config.get("base_model_name_or_path")
    if not name:
        raise UserError(
            f"{folder / ADAPTER_CONFIG} names no base_model_name_or_path; add the base model."
        )
    found = find_model(name)
    if Path(found).is_dir():
        return Path(found)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(found))


def _write_merged(base: Path, weights: Path, config: Mapping[str, Any], target: Path) -> None:
    from safetensors.torch import load_file, save_file

    adapter = load_file(weights)
    left = {name.removeprefix(_PREFIX).removesuffix(_DOWN) for name in adapter if _DOWN in name}
    if not left or len(adapter) != 2 * len(left):
        raise UserError(f"{weights} holds other weights than pairs of lora_A and lora_B.")
    for file in sorted(base.iterdir()):
        if file.suffix != ".safetensors":
            if file.is_file():
                shutil.copyfile(file, target / file.name)
            continue
        tensors = load_file(file)
        for module in sorted(left):
            name = f"{module}.weight"
            if name in tensors:
                down = adapter[f"{_PREFIX}{module}{_DOWN}"].float()
                up = adapter[f"{_PREFIX}{module}{_UP}"].float()
                change = _scale(config, module, down.shape[0]) * (up @ down)
                tensors[name] = (tensors[name].float() + change).to(tensors[name].dtype)
                left.discard(module)
        save_file(tensors, target / file.name, metadata={"format": "pt"})
    if left:
        raise UserError(
            f"The adapter's modules {', '.join(sorted(left)[:3])} are not in the base model "
            f"{base}; it was made for another one."
        )


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    patterns: Mapping[str, float] = config.get("alpha_pattern") or {}
    own = next((v for key, v in patterns.items() if module.endswith(key)), None)
    alpha = float(config["lora_alpha"] if own is None else own)
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _cache() -> Path:
    return Path(os.environ.get("VERIGRAD_CACHE") or Path.home() / ".cache" / "verigrad")


def _find_tokenizer(folder: Path) -> list[Path]:
    return sorted({file for pattern in _TOKENIZER for file in folder.glob(pattern)})


def _name(folder: Path, base: Path) -> str:
    digest = hashlib.blake2b(str(base.resolve()).encode(), digest_size=8)
    for file in (folder / ADAPTER_CONFIG, folder / _WEIGHTS, *_find_tokenizer(folder)):
        digest.update(file.name.encode() + file.read_bytes())
    for file in sorted(base.iterdir()):  # gigabytes: known by size and time
        digest.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return f"{folder.name}-{digest.hexdigest()}"
