"""A causal language model as the learner uses it: from padded token ids to log-probabilities."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import init_empty_weights
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from grpo.learner.adapters import add_adapters
from grpo.learner.logprobs import compute_logprobs
from grpo.learner.options import LearnerOptions
from grpo.learner.packing import packs_samples, use_fastest_attention
from grpo.learner.selecting import select_names
from verifiers.errors import UserError

PROBE_TOLERANCE = 1e-3


class Policy(nn.Module):
    """The trunk of a model and its output layer, applied at chosen positions only.

    Its `forward` is the one entry of a training pass, so it is what accelerate wraps.

    Args:
        model: Any causal language model of transformers whose logits are its output layer applied
            to the trunk's last hidden state; `check_output_layer` proves that this holds.
        temperature: What logits are divided by in training: the sampler's.
    """

    def __init__(self, model: PreTrainedModel, *, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(
        self,
        input_ids_B_T: Tensor,
        positions_N: Tensor,
        targets_N: Tensor,
        position_ids_B_T: Tensor | None = None,
        *,
        temperature: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute log-probability and entropy at every chosen position.

        Rows are padded on the right. No attention mask is needed: attention is causal, so no
        position that is read ever sees the padding after it. Where rows are packed, the model
        itself keeps samples apart, by their positions.

        Args:
            input_ids_B_T: Token ids.
            positions_N: Index into the flattened B * T positions of the token *before* each target.
            targets_N: The target token ids.
            position_ids_B_T: Each token's place in its sample, where several share a row.
            temperature: Another one than in training.

        Returns:
            Log-probabilities and entropies, both of shape N.
        """
        hidden_B_T_H = self._hidden_states(input_ids_B_T, position_ids_B_T)
        hidden_N_H = hidden_B_T_H.flatten(0, 1)[positions_N]
        head = self._output_layer()
        return compute_logprobs(
            hidden_N_H,
            head.weight,
            head.bias,
            targets_N,
            temperature=self.temperature if temperature is None else temperature,
        )

    def blocks(self) -> list[nn.Module]:
        """The decoder layers: what a sharded policy gathers one after the other."""
        names = self.model._no_split_modules or ()  # noqa: SLF001 - the one list that models have
        return [module for module in self.model.modules() if type(module).__name__ in names]

    def check_output_layer(self) -> None:
        """Prove on a short text that trunk and output layer give the model's own logits.

        To be called while the weights are whole.

        Raises:
            UserError: If they do not, as for a model that scales or caps its logits.
        """
        device = self._output_layer().weight.device
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        ids_B_T = torch.arange(1, 9, device=device)[None] % vocabulary
        positions_N, targets_N = torch.arange(7, device=device), ids_B_T[0, 1:]
        was_training = self.training
        self.eval()
        with torch.no_grad():
            got_N, _ = self(ids_B_T, positions_N, targets_N)
            logits = self.model(input_ids=ids_B_T, use_cache=False).logits[0, :-1]
        self.train(was_training)
        log_p = torch.log_softmax(logits.to(got_N.dtype) / self.temperature, -1)
        worst = (log_p.gather(1, targets_N[:, None]).squeeze(1) - got_N).abs().max().item()
        if not worst <= PROBE_TOLERANCE:
            raise UserError(
                f"{type(self.model).__name__} does more to its logits than its output layer (its "
                f"own log-probabilities differ by {worst:.3g}), so this learner would train "
                "another model than the one it loads. Use an architecture without logit scaling "
                "or soft-capping."
            )

    def check_packing(self) -> None:
        """Prove on two short texts that the model keeps samples of one row apart.

        To be called while the weights are whole.

        Raises:
            UserError: If it does not, as one whose layers carry a state from token to token.
        """
        device = self._output_layer().weight.device
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        ids_T = torch.arange(1, 17, device=device) % vocabulary
        places_T = torch.arange(8, device=device).repeat(2)
        positions_N = torch.arange(8, 15, device=device)
        was_training = self.training
        self.eval()
        with torch.no_grad():
            packed_N, _ = self(ids_T[None], positions_N, ids_T[9:], places_T[None])
            alone_N, _ = self(ids_T[None, 8:], positions_N - 8, ids_T[9:])
        self.train(was_training)
        worst = (packed_N - alone_N).abs().max().item()
        if not worst <= PROBE_TOLERANCE:
            raise UserError(
                f"{type(self.model).__name__} mixes samples that share a row (a log-probability "
                f"differs by {worst:.3g} from that of the sample alone), so they cannot be packed. "
                "Set learner.packing to off."
            )

    def _hidden_states(self, input_ids_B_T: Tensor, position_ids_B_T: Tensor | None) -> Tensor:
        trunk: Any = self.model.get_decoder()
        # Some models take no positions; those are never packed.
        places = {} if position_ids_B_T is None else {"position_ids": position_ids_B_T}
        return trunk(input_ids=input_ids_B_T, use_cache=False, **places).last_hidden_state

    def _output_layer(self) -> nn.Linear:
        head = self.model.get_output_embeddings()
        assert isinstance(head, nn.Linear), f"output layer is a {type(head).__name__}"
        return head


def load_policy(options: LearnerOptions, *, trainable: bool, empty: bool = False) -> Policy:
    """Load the model that training starts from, as the policy or as its frozen reference.

    Both hold float32 weights (float64 in proofs): the policy because small updates vanish in
    bfloat16, the reference because it must agree with the policy exactly while the two are the
    same.

    Args:
        options: Names the model.
        trainable: Whether its weights change; otherwise they are frozen.
        empty: Leave the weights on the device `meta`, for a rank that is given its shards of them.

    Raises:
        UserError: If there is no such model, or it is none that `Policy` can train.
    """
    dtype = torch.float64 if options.precision == "float64" else torch.float32
    try:
        model = _outline_model(options.model, dtype) if empty else _load_model(options.model, dtype)
    except (OSError, ValueError) as error:
        raise UserError(
            f"model={options.model!r} cannot be loaded as a causal language model: {error} Give a"
            " folder in Hugging Face format or a hub id that transformers can load."
        ) from error
    switch_off_dropout(model)
    if trainable and options.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = Policy(model, temperature=options.temperature)
    policy.requires_grad_(trainable)
    if trainable and not empty:
        policy.check_output_layer()
    if packs_samples(options):
        if not empty:
            policy.check_packing()
        use_fastest_attention(model, options)
    if trainable:
        _choose_trainable(model, options)
    return policy.train(trainable)


def _load_model(name: str, dtype: torch.dtype) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype)


def _outline_model(name: str, dtype: torch.dtype) -> PreTrainedModel:
    """The model without its weights; buffers that follow from the configuration are there."""
    config = AutoConfig.from_pretrained(name)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.tie_weights()  # what is registered there is a new parameter each time
    return model


def _choose_trainable(model: PreTrainedModel, options: LearnerOptions) -> None:
    """Freeze what the options say does not train."""
    if options.lora is not None:
        add_adapters(model, options.lora)
        return
    names = [name for name, _ in model.named_parameters()]
    frozen = select_names(names, options.frozen_layers, option="learner.frozen_layers")
    if len(frozen) == len(names):
        raise UserError(
            "learner.frozen_layers matches every weight of the model, so nothing would train: "
            f"leave out one of {', '.join(map(repr, options.frozen_layers))}."
        )
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)


def switch_off_dropout(model: nn.Module) -> None:
    """Set every dropout rate to 0: the sampler has none, and the two must be the same function."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            vars(module)["attention_dropout"] = 0.0
