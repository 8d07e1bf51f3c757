"""A random little model, and batches for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from grpo.learner.learner import Learner
from grpo.learner.options import LearnerOptions
from grpo.seeding import seed_everything
from grpo.values import Batch, TrainSample

VOCABULARY = 23


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory) -> Path:
    """A folder with a random Qwen2 of 16,000 weights and a tokenizer."""
    folder = tmp_path_factory.mktemp("tiny_policy")
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        attention_dropout=0.1,
    )
    with torch.random.fork_rng():
        seed_everything(7)
        model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    words = {"<pad>": 0, **{f"w{i}": i for i in range(1, VOCABULARY)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>").save_pretrained(folder)
    return folder


@pytest.fixture
def options(tiny_policy) -> Iterator[LearnerOptions]:
    """Options that train the tiny policy visibly."""
    yield LearnerOptions(
        model=str(tiny_policy),
        max_completion_length=8,
        max_tokens_per_microbatch=40,
        learning_rate=1e-3,
        total_steps=10,
        use_cpu=True,
        check_sampler_logprobs=False,
    )
    # accelerate keeps one state for a whole process and refuses another precision.
    AcceleratorState._reset_state(reset_partial_state=True)


def make_samples(num_groups: int = 3, num_members: int = 4, seed: int = 0) -> list[TrainSample]:
    """Completions of random tokens and lengths, with advantages of mean 0 in every group."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, count: int = 1) -> list[int]:
        return torch.randint(low, high, (count,), generator=generator).tolist()

    samples = []
    for group in range(num_groups):
        prompt = draw(1, VOCABULARY, 2 + group)
        for member in range(num_members):
            completion = draw(0, VOCABULARY, draw(1, 9)[0])
            samples.append(
                TrainSample(
                    problem_id=f"p{group}",
                    member=member,
                    prompt_ids=tuple(prompt),
                    completion_ids=tuple(completion),
                    sampler_logprobs=(-3.0,) * len(completion),
                    advantage=1.0 if member % 2 else -1.0,
                    policy_version=0,
                    reward=float(member % 2),
                )
            )
    return samples


def make_batch(samples: list[TrainSample], step: int = 1) -> Batch:
    """A batch whose normaliser is right."""
    total = sum(sample.num_loss_tokens for sample in samples)
    return Batch(step=step, samples=tuple(samples), num_loss_tokens=total)


def _sample_logprobs(learner: Learner, sample: TrainSample) -> tuple[float, ...]:
    """What the sampler reports: log-probabilities at the temperature that training uses."""
    first, last = len(sample.prompt_ids) - 1, sample.num_tokens - 1
    ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
    with torch.no_grad():
        logprobs, _ = learner.policy(ids, torch.arange(first, last), ids[0, first + 1 :])
    return tuple(logprobs.tolist())


def with_true_logprobs(learner: Learner, samples: list[TrainSample]) -> list[TrainSample]:
    """The samples as if an exact engine had drawn them."""
    return [replace(s, sampler_logprobs=_sample_logprobs(learner, s)) for s in samples]


@pytest.fixture
def samples() -> list[TrainSample]:
    """A dozen completions in three groups."""
    return make_samples()


@pytest.fixture
def build():
    """The helpers above, for tests that need other numbers."""

    class Build:
        samples = staticmethod(make_samples)
        batch = staticmethod(make_batch)
        with_true_logprobs = staticmethod(with_true_logprobs)

    return Build
