"""From a problem's prompt to token ids, and back from token ids to text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from verifiers.errors import UserError
from verifiers.problem import Problem


class PromptEncoder:
    """A model's tokenizer, and what ends its completions.

    Args:
        model: Folder or hub id.

    Raises:
        UserError: There is no tokenizer, or nothing that ends a completion.
    """

    def __init__(self, model: str) -> None:
        from transformers import AutoTokenizer, GenerationConfig

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise UserError(
                f"model={model!r} has no tokenizer that transformers can load: {error}"
            ) from error
        eos: set[int] = set()
        try:
            configured = GenerationConfig.from_pretrained(model).eos_token_id
            eos.update([configured] if isinstance(configured, int) else configured or [])
        except OSError:
            pass  # a model without generation_config.json ends where its tokenizer says
        if self.tokenizer.eos_token_id is not None:
            eos.add(self.tokenizer.eos_token_id)
        if not eos:
            raise UserError(
                f"model={model!r} names no end-of-sequence token, neither in "
                f"generation_config.json nor in its "
                "tokenizer, so no completion could ever end; set eos_token_id in one of them."
            )
        self.stop_token_ids: tuple[int, ...] = tuple(sorted(eos))

    def encode(self, problem: Problem) -> tuple[int, ...]:
        """The prompt as the model is to see it.

        Chat messages, and plain text where the model has a chat template, go through the template
        with the assistant's turn opened. Plain text for a base model is taken as it is.

        Raises:
            UserError: The problem has chat messages, and the model has no chat template.
        """
        prompt = problem.prompt
        if self.tokenizer.chat_template is None:
            if not isinstance(prompt, str):
                raise UserError(
                    f"{problem.source} has chat messages, but the model's tokenizer has no chat "
                    f"template. Give the "
                    "prompt as plain text, or use a chat model."
                )
            return tuple(self.tokenizer(prompt)["input_ids"])
        messages = (
            [{"role": "user", "content": prompt}]
            if isinstance(prompt, str)
            else [dict(m) for m in prompt]
        )
        return tuple(
            self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
        )

    def encode_all(
        self, problems: Iterable[Problem], max_prompt_length: int
    ) -> Mapping[str, tuple[int, ...]]:
        """Encode many problems, by id.

        Raises:
            UserError: One is longer than `max_prompt_length`; the message names it.
        """
        encoded = {}
        for problem in problems:
            ids = self.encode(problem)
            if len(ids) > max_prompt_length:
                raise UserError(
                    f"{problem.source} has a prompt of {len(ids)} tokens, more than "
                    f"max_prompt_length="
                    f"{max_prompt_length}. Raise it, or remove the row."
                )
            encoded[problem.id] = ids
        return encoded


def read_max_positions(model: str) -> int | None:
    """Tokens that a model has positions for; None where it does not say."""
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)
