"""Models of random weights that cost what trained ones of their shape cost, with a tokenizer."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

# 2.4 M weights.
TINY = Qwen2Config(
    vocab_size=128,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)
# SmolLM2-135M's.
SMOLLM2 = LlamaConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
    max_position_embeddings=2048,
)
SHAPES = {"tiny": TINY, "smollm2": SMOLLM2}


def make_model(folder: Path, shape: str) -> None:
    """Write a model and a tokenizer of single characters, in Hugging Face format.

    The model never draws its end token, so that every completion is as long as it may be.

    Args:
        folder: Where to.
        shape: A key of `SHAPES`.
    """
    config = SHAPES[shape]
    model = (Qwen2ForCausalLM if isinstance(config, Qwen2Config) else LlamaForCausalLM)(config)
    end_id = config.vocab_size - 1
    # A direction that every hidden state has, and that only this token's logit falls along.
    with torch.no_grad():
        embedding = model.get_parameter("model.embed_tokens.weight")
        embedding[:, 0] = 4.0
        embedding[end_id, 0] = -4.0
    model.generation_config.eos_token_id = end_id
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    pad, end = "<pad>", "<eos>"
    words = [pad, *string.digits, *string.ascii_letters, *"+-*/= "]
    words += [f"<{index}>" for index in range(len(words), end_id)]
    vocabulary = {word: index for index, word in enumerate([*words, end])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=pad))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, eos_token=end
    ).save_pretrained(folder)
