"""What the rollout pool costs and saves: beside bare vLLM, and beside generation in whole batches.

    .venv/bin/python benchmarks/rollouts.py

Both sides of a comparison run in turns, each with one thread, so that a busy machine shifts both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# This folder has a verifiers.py too.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import ray  # noqa: E402

from grpo.paths import find_model  # noqa: E402
from grpo.rollout.engine import build_vllm_engine  # noqa: E402
from grpo.rollout.options import (  # noqa: E402
    EngineOptions,
    engine_environment,
    resolve_options,
)
from grpo.rollout.pool import RolloutPool  # noqa: E402
from grpo.rollout.protocol import Engine  # noqa: E402
from grpo.seeding import make_random  # noqa: E402
from grpo.values import RolloutRequest, SamplingOptions  # noqa: E402

PROMPT_TOKENS, SHORTEST, LONGEST = 24, 16, 1024
# Of the logarithm of a length: half of the completions have at most 64 tokens, one in forty
# reaches the limit.
MEDIAN, SPREAD = 64, 1.4
BATCH = 64


class BareLLM:
    """`vllm.LLM` in a process of its own, with the arguments that the pool's engines get."""

    def __init__(self, options: EngineOptions) -> None:
        from vllm import LLM

        from grpo.rollout.vllm_adapter import make_engine_args

        self._llm = LLM.from_engine_args(make_engine_args(options))

    def generate(
        self, requests: Sequence[RolloutRequest], sampling: SamplingOptions
    ) -> tuple[float, float, int]:
        """Wall seconds, CPU seconds and tokens of one call of `LLM.generate`."""
        from grpo.rollout.vllm_adapter import make_sampling_params

        prompts = [{"prompt_token_ids": list(r.prompt_ids)} for r in requests for _ in r.seeds]
        params = [make_sampling_params(sampling, seed=s) for r in requests for s in r.seeds]
        wall, cpu = time.perf_counter(), time.process_time()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)  # pyright: ignore[reportArgumentType]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return wall, cpu, sum(len(output.outputs[0].token_ids) for output in outputs)


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("throughput", "tail"))
    parser.add_argument("--model", default="embedded:quickstart", help="folder or hub id")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--groups", type=int, default=16, help="of 8 completions")
    parser.add_argument("--tokens", type=int, default=64, help="of a completion, for throughput")
    args = parser.parse_args()
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200_000_000,
    )
    with tempfile.TemporaryDirectory() as folder:
        options = EngineOptions(
            model=make_long(find_model(args.model), Path(folder)),
            max_model_len=PROMPT_TOKENS + LONGEST,
            max_num_seqs=BATCH,
            num_threads=1,
            kv_cache_memory_mb=512,
        )
        try:
            if args.part != "tail":
                compare_throughput(options, args.pairs, make_requests(args.groups, 8), args.tokens)
            if args.part != "throughput":
                compare_tail(options, args.pairs, make_requests(4 * BATCH, 1))
        finally:
            ray.shutdown()


def make_long(model: str, folder: Path) -> str:
    """The quickstart's policy with room for long completions; any other model as it is.

    Its positions are rotations, so the weights stay what they are; what it says there means
    nothing, but costs the same.
    """
    config = Path(model) / "config.json"
    if not config.is_file():
        return model
    values = json.loads(config.read_text())
    if values["max_position_embeddings"] >= PROMPT_TOKENS + LONGEST:
        return model
    target = shutil.copytree(model, folder / "model")
    values["max_position_embeddings"] = PROMPT_TOKENS + LONGEST
    (target / "config.json").write_text(json.dumps(values))
    return str(target)


def compare_throughput(
    options: EngineOptions, pairs: int, requests: Sequence[RolloutRequest], num_tokens: int
) -> None:
    """The pool and `vllm.LLM.generate` on the same requests, in turns."""
    sampling = SamplingOptions(max_completion_length=num_tokens, stop_token_ids=())
    resolved = resolve_options(options, num_cores=1, num_engines=1)
    environment = {"env_vars": engine_environment(resolved, os.environ)}
    make_remote: Any = ray.remote  # Ray's type hints know the decorator only
    bare = make_remote(BareLLM).options(num_cpus=0, runtime_env=environment).remote(resolved)
    pool = open_pool(options, build_vllm_engine)
    ours, theirs = [], []
    for index in range(pairs + 1):
        order = (0, 1) if index % 2 else (1, 0)
        rates = [0.0, 0.0]
        for side in order:
            if side == 0:
                seconds, tokens = measure(lambda: list(pool.generate(requests, sampling)))
            else:
                seconds, _, tokens = ray.get(bare.generate.remote(requests, sampling))
            rates[side] = tokens / seconds
        if index:  # the first warms both up
            ours.append(rates[0])
            theirs.append(rates[1])
    pool.close()
    count = sum(len(request.seeds) for request in requests)
    print(f"\n{count} completions of {num_tokens} tokens, at most {BATCH} at a time, 1 thread")
    print("| | tokens/s, median |\n| --- | ---: |")
    print(f"| pool, token ids to rollouts | {statistics.median(ours):.0f} |")
    print(f"| `vllm.LLM.generate` | {statistics.median(theirs):.0f} |")
    show_ratio([one / other for one, other in zip(ours, theirs, strict=True)])


def compare_tail(options: EngineOptions, pairs: int, requests: Sequence[RolloutRequest]) -> None:
    """A long-tailed workload, fed continuously, and in batches that each wait for their longest."""
    lengths = {r.seeds[0]: draw_length(r.seeds[0]) for r in requests}
    pool = open_pool(options, LongTailed(lengths))
    sampling = SamplingOptions(max_completion_length=LONGEST, stop_token_ids=())

    def run_in_batches() -> list[object]:
        starts = range(0, len(requests), BATCH)
        return [r for s in starts for r in pool.generate(requests[s : s + BATCH], sampling)]

    list(pool.generate(requests[:8], sampling))
    ours, theirs = [], []
    for _ in range(pairs):
        ours.append(measure(lambda: list(pool.generate(requests, sampling)))[0])
        theirs.append(measure(run_in_batches)[0])
    pool.close()
    total = sum(lengths.values())
    shortest, longest = min(lengths.values()), max(lengths.values())
    print(
        f"\n{len(requests)} completions of {shortest} to {longest} tokens (log-normal, median "
        f"{MEDIAN}), at most {BATCH} at a time, 1 thread"
    )
    print("| | seconds, median | tokens/s |\n| --- | ---: | ---: |")
    for name, seconds in (("continuous", ours), (f"batches of {BATCH}", theirs)):
        middle = statistics.median(seconds)
        print(f"| {name} | {middle:.1f} | {total / middle:.0f} |")
    show_ratio([other / one for one, other in zip(ours, theirs, strict=True)])


class LongTailed:
    """Builds an engine whose completions have given lengths.

    Args:
        lengths: By seed.
    """

    def __init__(self, lengths: dict[int, int]) -> None:
        self._lengths = lengths

    def __call__(self, options: EngineOptions, policy_version: int) -> Engine:
        """As `build_vllm_engine`."""
        from grpo.rollout.vllm_adapter import VllmEngine

        lengths = self._lengths

        class LongTailedEngine(VllmEngine):
            def add_request(
                self,
                request_id: str,
                prompt_ids: Sequence[int],
                seed: int,
                sampling: SamplingOptions,
            ) -> None:
                own = replace(sampling, max_completion_length=lengths[seed])
                super().add_request(request_id, prompt_ids, seed, own)

        return LongTailedEngine(options, policy_version)


def open_pool(options: EngineOptions, build: Callable[[EngineOptions, int], Engine]) -> RolloutPool:
    """A pool of one engine, ready."""
    pool = RolloutPool(options, build_engine=build)
    pool.start()
    pool.wait_ready()
    return pool


def make_requests(num_groups: int, size: int) -> list[RolloutRequest]:
    """Groups with prompts that share no first token block."""
    return [
        RolloutRequest(
            problem_id=f"p{group}",
            prompt_ids=tuple(5 + (group * 7 + place * 3) % 50 for place in range(PROMPT_TOKENS)),
            seeds=tuple(group * size + member for member in range(size)),
        )
        for group in range(num_groups)
    ]


def draw_length(seed: int) -> int:
    """Length of a completion, log-normal and cut off at both ends."""
    drawn = make_random(0, "length", seed).lognormvariate(math.log(MEDIAN), SPREAD)
    return min(max(round(drawn), SHORTEST), LONGEST)


def measure(work: Callable[[], list[object]]) -> tuple[float, int]:
    """Wall seconds of sampling rollouts, and how many tokens they have."""
    started = time.perf_counter()
    rollouts = work()
    seconds = time.perf_counter() - started
    return seconds, sum(len(rollout.completion_ids) for rollout in rollouts)  # pyright: ignore[reportAttributeAccessIssue]


def show_ratio(ratios: Sequence[float]) -> None:
    """The last row of a table."""
    print(f"| ratio of the pairs | {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
          f"{max(ratios):.2f}) |")  # fmt: skip


if __name__ == "__main__":
    main()
