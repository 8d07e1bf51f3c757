"""What every test has: public data where it is laid, and rules for the integration tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

# Before anything imports torch: idle OpenMP threads that spin take the cores from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Other processes may have the processors: no example is failed for its time.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell without job control starts what goes into the background deaf to Ctrl-C, and so would be
# the commands that are interrupted here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
INTEGRATION_TIMEOUT_S = 600
_NO_DATA = "no public benchmark data at"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public benchmark data: VERIGRAD_DATA, or shared/data beside the project."""
    folder = Path(os.environ.get("VERIGRAD_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{_NO_DATA} {folder}; set VERIGRAD_DATA to a folder that has it")
    return folder


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that gives the folder of a random policy of 0.1 M parameters and 128 words.

    Token 0 is padding, 1 the end, 2 unknown; the output head is tied to the embedding or not.
    """

    @cache
    def write(*, tied: bool) -> Path:
        folder = tmp_path_factory.mktemp("tied" if tied else "untied")
        _write_tiny_policy(folder, tied=tied)
        return folder

    return write


def _write_tiny_policy(folder: Path, *, tied: bool) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    from grpo.seeding import seed_everything

    words = ["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(3, 128))]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        # The defaults would be tokens that this vocabulary does not have.
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        # Ten times the usual spread: otherwise every distribution is nearly flat.
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        seed_everything(0)
        Qwen2ForCausalLM(config).save_pretrained(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in tests/integration, and give them the time that real parts take."""
    for item in items:
        if ROOT / "tests" / "integration" in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where VERIGRAD_STRICT is set, a skipped integration test is a failed one.

    The machine that runs the gate has promised Docker, Ray and vLLM; only absent data excuses.
    """
    report = yield
    promised = os.environ.get("VERIGRAD_STRICT") and item.get_closest_marker("integration")
    if promised and report.skipped and _NO_DATA not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but this gate promises it: {report.longrepr}"
    return report
