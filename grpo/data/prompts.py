"""From a problem's prompt to token ids, as the model is to see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from verifiers.errors import UserError
from verifiers.problem import Message, Problem

NO_TEMPLATE = "none"
_BATCH_SIZE = 1024
_PROBE = "\N{BLACK STAR}"  # a text that no template writes by itself


class PromptEncoder:
    """A model's tokenizer, its chat template, and what ends its completions.

    Args:
        model: Folder or hub id.
        chat_template: A file with another template, or `none` for prompts as plain text; None for
            the model's own.
        template_options: Variables that the template reads, such as `enable_thinking`.
        completion_prefix: Text that every prompt ends with, after the assistant's turn has begun.

    Raises:
        UserError: There is no tokenizer, or nothing that ends a completion.
    """

    def __init__(
        self,
        model: str,
        *,
        chat_template: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        completion_prefix: str = "",
    ) -> None:
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise UserError(_describe_no_tokenizer(model, error)) from error
        self._template_options = dict(template_options or {})
        self._completion_prefix = completion_prefix
        if chat_template is not None:
            self.tokenizer.chat_template = _read_template(chat_template)
        eos = find_eos_ids(model, self.tokenizer.eos_token_id)
        turn_end = self._find_turn_end()
        # A chat model that was tuned from a base model often keeps the base model's end token in
        # its configuration, and would talk on after its turn.
        self.added_stop_token = turn_end if turn_end is not None and turn_end not in eos else None
        self.stop_token_ids: tuple[int, ...] = tuple(
            sorted(eos | ({turn_end} if turn_end is not None else set()))
        )

    @property
    def chat_template(self) -> str | None:
        """The template's text; None where prompts are plain text."""
        return self.tokenizer.chat_template

    def render(self, problem: Problem) -> str:
        """The prompt's text, to the last character.

        Chat messages, and plain text where there is a chat template, go through the template with
        the assistant's turn opened. Without a template the contents of the messages are joined by
        blank lines: worked examples and a question for a base model.
        """
        prompt = problem.prompt
        if self.chat_template is None:
            text = prompt if isinstance(prompt, str) else _join_messages(prompt)
        else:
            text = self._apply(
                [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            )
        return text + self._completion_prefix

    def encode(self, problem: Problem) -> tuple[int, ...]:
        """The prompt as token ids; see `render`."""
        return self.encode_all([problem])[problem.id]

    def encode_all(self, problems: Iterable[Problem]) -> Mapping[str, tuple[int, ...]]:
        """Many prompts as token ids, by the problem's id."""
        # A template writes its own beginning-of-sequence token; plain text needs the tokenizer's.
        add_special_tokens = self.chat_template is None
        encoded: dict[str, tuple[int, ...]] = {}
        rest = iter(problems)
        # At once they are encoded by all cores; all at once, their text would be there twice.
        while batch := list(islice(rest, _BATCH_SIZE)):
            ids = self.tokenizer(
                [self.render(problem) for problem in batch],
                add_special_tokens=add_special_tokens,
                return_attention_mask=False,
            )["input_ids"]
            encoded |= {p.id: tuple(row) for p, row in zip(batch, ids, strict=True)}
        return encoded

    def _apply(self, messages: Sequence[Message], *, opened: bool = True) -> str:
        from jinja2 import TemplateError

        try:
            return self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                add_generation_prompt=opened,
                tokenize=False,
                **self._template_options,
            )
        except TemplateError as error:
            raise UserError(
                f"The chat template does not take these messages ({error}): roles "
                f"{', '.join(message['role'] for message in messages)}. Some templates have no "
                "system role: set system_prompt to null."
            ) from error

    def _find_turn_end(self) -> int | None:
        """The special token with which the template ends the assistant's turn, if there is one."""
        if self.chat_template is None:
            return None
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}]
        _, found, after = self._apply(turns, opened=False).rpartition(_PROBE)
        if not found or not after.strip():
            return None
        first = self.tokenizer(after, add_special_tokens=False)["input_ids"][0]
        return first if first in self.tokenizer.all_special_ids else None


def find_eos_ids(model: str, tokenizer_eos: int | None) -> set[int]:
    """Token ids that end a completion, by the model's configuration and its tokenizer.

    Raises:
        UserError: There is none.
    """
    from transformers import GenerationConfig

    eos: set[int] = set()
    try:
        configured = GenerationConfig.from_pretrained(model).eos_token_id
        eos.update([configured] if isinstance(configured, int) else configured or [])
    except OSError:
        pass  # a model without generation_config.json ends where its tokenizer says
    if tokenizer_eos is not None:
        eos.add(tokenizer_eos)
    if not eos:
        raise UserError(
            f"model={model!r} names no end-of-sequence token, neither in generation_config.json "
            "nor in its tokenizer, so no completion could ever end; set eos_token_id in one of "
            "them."
        )
    return eos


def read_max_positions(model: str) -> int | None:
    """Tokens that a model has positions for; None where it does not say."""
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)


def read_hub_commit(model: str) -> str | None:
    """The commit that a hub id stood for when it was loaded; None for a folder."""
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(model), "_commit_hash", None)


def _describe_no_tokenizer(model: str, error: Exception) -> str:
    cause = " ".join(str(error).split())
    if Path(model).is_dir():
        return f"model={model!r} has no tokenizer that transformers can load: {cause}"
    return (
        f"The tokenizer of model={model!r} did not come from the hub: {cause} Without a "
        "connection give a model's folder. Behind a mirror set HF_ENDPOINT; for a gated model, "
        "HF_TOKEN; with a filled cache, HF_HUB_OFFLINE=1."
    )


def _read_template(name: str) -> str | None:
    if name == NO_TEMPLATE:
        return None
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"prompting.chat_template={name!r} cannot be read: {error}. Give a Jinja file, or "
            f"`{NO_TEMPLATE}` for prompts as plain text."
        ) from None


def _join_messages(messages: Sequence[Message]) -> str:
    return "\n\n".join(message["content"] for message in messages)
