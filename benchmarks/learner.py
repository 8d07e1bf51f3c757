"""What learning costs: an update, memory of the loss, a checkpoint, and a whole step beside TRL.

    .venv/bin/python benchmarks/learner.py [update | memory | checkpoint | step] [--trl FOLDER]

Every figure is a ratio of two things measured in turns in this process, or in processes that
differ in one thing, so that a busy machine shifts both sides. A whole step needs TRL in a folder of
its own: pip install --no-deps --target FOLDER trl==1.16.0
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

# This folder has a verifiers.py too.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch  # noqa: E402
from transformers import LlamaForCausalLM, Qwen2ForCausalLM  # noqa: E402

from benchmarks.shapes import SMOLLM2, TINY, make_model  # noqa: E402
from benchmarks.whole_step import Job, time_trl, time_verigrad  # noqa: E402
from grpo.learner.learner import Learner  # noqa: E402
from grpo.learner.logprobs import compute_logprobs  # noqa: E402
from grpo.learner.options import LearnerOptions  # noqa: E402
from grpo.seeding import seed_everything  # noqa: E402
from grpo.values import Batch, TrainSample  # noqa: E402

# What TRL's options cost: without a reference and checkpointing, in one pass, and its defaults.
STEPS = (
    ("tiny", "tuned", Job(shape="tiny", beta=0.0, accumulation=1, checkpointing=False)),
    ("tiny", "defaults", Job(shape="tiny", beta=0.04, accumulation=4, checkpointing=True)),
    (
        "smollm2",
        "defaults",
        Job(shape="smollm2", beta=0.04, accumulation=4, checkpointing=True, warmup=1, steps=2),
    ),
)
PROMPT, COMPLETION, GROUPS, MEMBERS = 4, 32, 16, 8
LOSS_TOKENS, WIDTH, VOCABULARY = 8 * 1024, 576, 49_152


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=("update", "memory", "checkpoint", "step"))
    parser.add_argument("--pairs", type=int, default=15, help="interleaved pairs of updates")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl", type=Path, metavar="FOLDER", help="where TRL was installed to")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each trainer, in turns")
    parser.add_argument("--only", choices=("tiny", "smollm2"), help="whole steps of one model")
    parser.add_argument("--loss", choices=("none", "chunked", "full"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seed_everything(0)
    if args.loss:
        run_loss(args.loss)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    parts: dict[str, Callable[[], None]] = {
        "update": lambda: compare_updates(args.pairs),
        "memory": compare_memory,
        "checkpoint": time_checkpoint,
        "step": lambda: compare_steps(args),
    }
    if args.part == "step" and args.trl is None:
        parser.error("a whole step is compared with TRL's: say where it is with --trl")
    if args.trl is None:
        del parts["step"]
    for name in [args.part] if args.part else parts:
        parts[name]()


def compare_updates(num_pairs: int) -> None:
    """One optimizer step of the learner, and one written out in plain torch, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        model = Qwen2ForCausalLM(TINY)
        model.save_pretrained(folder)
        learner = load(folder)
    batch = make_batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95))
    plain = [torch.tensor([[*s.prompt_ids, *s.completion_ids] for s in batch.samples])]
    advantages = torch.tensor([s.advantage for s in batch.samples])[:, None]

    def run_plain() -> None:
        ids = plain[0]
        logits = model(ids, use_cache=False).logits[:, PROMPT - 1 : -1]
        logprobs = torch.log_softmax(logits, -1).gather(2, ids[:, PROMPT:, None]).squeeze(2)
        loss = -((logprobs - logprobs.detach()).exp() * advantages).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    ratios, ours, theirs = [], [], []
    for index in range(num_pairs + 2):
        pair = [measure(lambda: learner.update(batch)), measure(run_plain)]
        if index < 2:
            continue  # allocators and thread pools warm up
        ours.append(pair[0])
        theirs.append(pair[1])
        ratios.append(pair[0] / pair[1])
    parameters = sum(weight.numel() for weight in model.parameters()) / 1e6
    print(
        f"\nUpdate of a {parameters:.1f} M model on {len(batch.samples)} completions, CPU seconds"
    )
    print("| | median |\n| --- | --- |")
    print(f"| learner, with every check and metric | {statistics.median(ours):.3f} |")
    print(f"| plain torch: forward, backward, AdamW | {statistics.median(theirs):.3f} |")
    print(f"| ratio of the pairs | {statistics.median(ratios):.2f} |")


def compare_memory() -> None:
    """Peak memory of log-probabilities and their gradient, chunked and with all logits at once."""
    peaks = {kind: measure_peak(kind) for kind in ("none", "chunked", "full")}
    ours, full = (peaks[kind] - peaks["none"] for kind in ("chunked", "full"))
    print(f"\nLog-probabilities, entropies and their gradient: {LOSS_TOKENS} tokens, vocabulary "
          f"{VOCABULARY}, width {WIDTH}, float32")  # fmt: skip
    print("| | peak above the inputs, MB |\n| --- | --- |")
    print(f"| learner | {ours:.0f} |\n| all logits at once | {full:.0f} |")
    print(f"| ratio | {ours / full:.1%} |")


def measure_peak(kind: str) -> float:
    """Largest resident memory of a process that computes the loss so, in MB."""
    command = [sys.executable, __file__, "--loss", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def run_loss(kind: str) -> None:
    """The log-prob and loss pass, forward and backward."""
    hidden = torch.randn(LOSS_TOKENS, WIDTH).requires_grad_()
    weight = (torch.randn(VOCABULARY, WIDTH) / WIDTH**0.5).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (LOSS_TOKENS,))
    if kind == "none":
        # Both gradients are part of any form.
        hidden.grad, weight.grad = torch.zeros_like(hidden), torch.zeros_like(weight)
        return
    if kind == "chunked":
        logprobs, _ = compute_logprobs(hidden, weight, None, targets, temperature=1.0)
    else:
        log_p = torch.log_softmax(hidden @ weight.T, -1)
        logprobs = log_p.gather(1, targets[:, None]).squeeze(1)
    logprobs.mean().backward()


def time_checkpoint() -> None:
    """How long training waits for a checkpoint of a 135 M model with its optimizer."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "model"
        LlamaForCausalLM(SMOLLM2).save_pretrained(source)
        learner = load(str(source))
        for weight in learner.policy.parameters():
            weight.grad = torch.zeros_like(weight)
        learner.optimizer.step()  # the moments exist from the first step on
        learner.optimizer.zero_grad()
        learner.state.reserve()
        waits, spent, pauses, writes, size = [], [], [], [], 0
        for index in range(3):
            target = Path(folder) / f"checkpoint-{index}"
            started, cpu = time.perf_counter(), time.thread_time()
            learner.state.begin_save(target)
            waits.append(time.perf_counter() - started)
            spent.append(time.thread_time() - cpu)
            pauses.append(find_longest_pause(learner.state.finish_save))
            writes.append(time.perf_counter() - started)
            size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"\nCheckpoint of a 135 M model with its optimizer, {size / 1e9:.2f} GB, seconds")
    print("| | first | median of 3 |\n| --- | --- | --- |")
    print(f"| training waits | {waits[0]:.2f} | {statistics.median(waits):.2f} |")
    print(f"| of it on a CPU | {spent[0]:.2f} | {statistics.median(spent):.2f} |")
    print(f"| longest pause meanwhile | {pauses[0]:.2f} | {statistics.median(pauses):.2f} |")
    print(f"| until it is written | {writes[0]:.2f} | {statistics.median(writes):.2f} |")


def compare_steps(args: argparse.Namespace) -> None:
    """Whole steps of both trainers, in turns."""
    print("\nA whole step, CPU seconds of all processes (wall seconds)")
    print("| model | TRL's options | verigrad | TRL | TRL / verigrad |")
    print("| --- | --- | --- | --- | --- |")
    for shape, options, given in STEPS:
        if args.only not in {None, shape}:
            continue
        job = replace(given, threads=args.threads)
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            make_model(model, shape)
            pairs = [
                (time_verigrad(model, Path(folder) / str(index), job),
                 time_trl(model, job, args.trl))
                for index in range(args.rounds)
            ]  # fmt: skip
        ours, theirs = (
            {clock: statistics.median(pair[side][clock] for pair in pairs) for clock in pairs[0][0]}
            for side in (0, 1)
        )
        ratio = statistics.median(pair[1]["cpu"] / pair[0]["cpu"] for pair in pairs)
        print(
            f"| {shape} | {options} | {ours['cpu']:.2f} ({ours['wall']:.2f}) | "
            f"{theirs['cpu']:.2f} ({theirs['wall']:.2f}) | {ratio:.2f} |",
            flush=True,
        )


def find_longest_pause(work: Callable[[], object]) -> float:
    """Longest time in which this thread could not run while another did the work, in seconds."""
    thread = threading.Thread(target=work)
    thread.start()
    longest = 0.0
    while thread.is_alive():
        started = time.perf_counter()
        time.sleep(0.001)
        longest = max(longest, time.perf_counter() - started - 0.001)
    return longest


def load(model: str) -> Learner:
    """A learner of one rank in float32."""
    return Learner(
        LearnerOptions(
            model=model,
            max_completion_length=COMPLETION,
            max_tokens_per_microbatch=GROUPS * MEMBERS * (PROMPT + COMPLETION),
            learning_rate=1e-4,
            adam_betas=(0.9, 0.95),
            total_steps=1000,
            use_cpu=True,
            check_sampler_logprobs=False,
        )
    )


def make_batch() -> Batch:
    """Completions of one length, so that neither side has padding to compute with."""
    samples = tuple(
        TrainSample(
            problem_id=f"p{group}",
            member=member,
            prompt_ids=tuple(torch.randint(1, 128, (PROMPT,)).tolist()),
            completion_ids=tuple(torch.randint(1, 128, (COMPLETION,)).tolist()),
            sampler_logprobs=(-4.85,) * COMPLETION,
            advantage=1.0 if member % 2 else -1.0,
            policy_version=0,
        )
        for group in range(GROUPS)
        for member in range(MEMBERS)
    )
    return Batch(step=1, samples=samples, num_loss_tokens=len(samples) * COMPLETION)


def measure(work: Callable[[], object]) -> float:
    """CPU seconds of all threads of this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
