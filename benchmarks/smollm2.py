"""A policy of SmolLM2's shape in float32, its weights drawn, beside a Ray of its own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from benchmarks.shapes import SMOLLM2
from grpo.paths import find_model
from grpo.rollout.options import available_cores
from grpo.seeding import seed_everything


@contextmanager
def open_smollm2(*, store_bytes: int) -> Iterator[tuple[str, LlamaForCausalLM]]:
    """Have such a policy in a folder and in memory, while Ray runs.

    Args:
        store_bytes: Of Ray's object store.
    """
    torch.set_num_threads(available_cores())
    seed_everything(0)
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=store_bytes,
        runtime_env={"env_vars": {"PYTHONPATH": sys.path[0]}},
    )
    with tempfile.TemporaryDirectory() as folder:
        model = LlamaForCausalLM(SMOLLM2).eval()
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(find_model("embedded:quickstart")).save_pretrained(folder)
        yield folder, model
    ray.shutdown()
