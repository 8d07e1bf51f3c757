"""The quickstart policy's tokenizer: one token a byte, and a few whole pieces of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from quickstart_tasks import NUMBER_STEPS, TEXT_STEPS
from tokenizers import pre_tokenizers
from transformers import AddedToken, Qwen2Tokenizer

PAD, END, USER, ASSISTANT = SPECIAL = (
    "<|pad|>",
    "<|end|>",
    "<|user|>",
    "<|assistant|>",
)
PAD_ID, END_ID = SPECIAL.index(PAD), SPECIAL.index(END)
ANSWER_PIECES = (
    "\\boxed{",
    "```python\n",
    "\n```",
    "def f(",
    "): ",
    "return ",
    "max(",
    "min(",
    "abs(",
    "str(",
    ".upper()",
    ".swapcase()",
)
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['user', 'assistant'] -%}"
    "{{- raise_exception('the quickstart policy knows only the roles user and assistant') -}}"
    "{%- endif -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def question_pieces() -> tuple[str, ...]:
    """The runs of words in which code problems are asked, such as `multiply by `."""
    texts = [step.words.replace("{k}", "0") for step in (*NUMBER_STEPS, *TEXT_STEPS)]
    runs = {run for text in texts for run in re.findall(r"[a-z][a-z ]+", text)}
    return ("f(", ", then ", *sorted(runs))


def build_tokenizer(*, max_length: int) -> Qwen2Tokenizer:
    """Build the tokenizer, chat template included.

    It is Qwen2's own kind, byte-level, because `AutoTokenizer` builds that kind for every model of
    the Qwen2 architecture, whatever class the files name. There are no merges: the pieces are added
    tokens, which are cut out of a text before anything else.

    Args:
        max_length: Tokens that the policy can attend to.
    """
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate((*SPECIAL, *bytes_))},
        merges=[],
        unk_token=PAD,  # never met: every byte has its token
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    pieces = sorted({*ANSWER_PIECES, *question_pieces()})
    added: list[str | AddedToken] = [AddedToken(piece, normalized=False) for piece in pieces]
    tokenizer.add_tokens(added)
    return tokenizer


def encode_chat(tokenizer: Qwen2Tokenizer, prompt: Sequence[dict[str, str]]) -> list[int]:
    """Token ids of a conversation, up to where the policy's answer begins."""
    text = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return tokenizer.encode(text)
