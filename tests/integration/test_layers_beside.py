"""Layers that are loaded beside those that compute, one by one, without an engine around them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    # vLLM uses what torch is about to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grpo.rollout.vllm_beside import SecondModel, TurnMemory, can_load_beside

NUM_LAYERS = 12
SHAPE = (96, 64)


class Stacked(nn.Module):
    """A linear layer whose weight comes in two halves."""

    def __init__(self, method):
        super().__init__()
        self.quant_method = method
        self.weight = nn.Parameter(torch.zeros(SHAPE), requires_grad=False)
        vars(self.weight)["weight_loader"] = self.load
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def load(self, param, loaded_weight, half):
        rows = SHAPE[0] // 2
        param.data.narrow(0, half * rows, rows).copy_(loaded_weight)

    def forward(self, inputs):
        return self.quant_method.apply(self, inputs) * self.scale


class Model(nn.ModuleList):
    """Layers that are loaded by names such as `3.weight.1`, the second half of a weight."""

    def load_weights(self, weights):
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            layer, kind, *half = name.split(".")
            parameter = parameters[f"{layer}.{kind}"]
            loaded.add(f"{layer}.{kind}")
            if half:
                parameter.weight_loader(parameter, tensor, int(half[0]))  # pyright: ignore[reportAttributeAccessIssue]
            else:
                parameter.data.copy_(tensor)
        return loaded


@pytest.fixture
def model():
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("layers are packed on a CPU only")
    current_platform.import_kernels()
    layers = [Stacked(UnquantizedLinearMethod()) for _ in range(NUM_LAYERS)]
    model = Model(layers)
    record_metadata_for_reloading(model)
    for layer in layers:
        layer.quant_method.process_weights_after_loading(layer)
        assert layer.weight.numel() == 0
    return model


def draw():
    return {
        f"{index}.{name}": torch.randn(shape)
        for index in range(NUM_LAYERS)
        for name, shape in (("weight", SHAPE), ("scale", (1,)))
    }


def split(weights):
    """What a checkpoint holds of them: each weight in two halves."""
    for name, tensor in weights.items():
        if name.endswith("weight"):
            yield from ((f"{name}.{half}", part) for half, part in enumerate(tensor.chunk(2)))
        else:
            yield name, tensor


def check(model, weights):
    inputs = torch.randn(5, SHAPE[1])
    for index, layer in enumerate(model):
        assert layer.weight.numel() == 0
        wanted = inputs @ weights[f"{index}.weight"].T * weights[f"{index}.scale"]
        torch.testing.assert_close(layer(inputs), wanted)


@pytest.mark.parametrize("interleaved", [False, True])
def test_every_layer_computes_with_its_own_new_weight_once_it_is_handed_over(model, interleaved):
    second = SecondModel(model)
    served = None
    for _ in range(3):
        weights = draw()
        assert can_load_beside(model)
        pairs = list(split(weights))
        second.load(sorted(pairs, key=lambda pair: pair[0][::-1]) if interleaved else pairs)
        if served is not None:
            check(model, served)
        second.take_over(torch.float32)
        check(model, weights)
        served = weights


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("7.weight.1", r"lacks weights for 1 layers: 7$"),
        ("7.weight", r"no weights for 1 parameters: 7\.weight$"),
        ("5.scale", r"no weights for 1 parameters: 5\.scale$"),
    ],
)
def test_a_push_that_lacks_something_is_refused_and_the_next_one_is_taken(model, missing, named):
    second = SecondModel(model)
    first = draw()
    second.load(split(first))
    second.take_over(torch.float32)
    with pytest.raises(ValueError, match=named):
        second.load((n, t) for n, t in split(draw()) if not n.startswith(missing))
    check(model, first)
    weights = draw()
    second.load(split(weights))
    second.take_over(torch.float32)
    check(model, weights)


def test_more_than_a_layer_is_named(model):
    weights = draw()
    pairs = [*split(weights), ("3.weight.0", weights["3.weight"].chunk(2)[0])]
    with pytest.raises(ValueError, match=r"more than the whole weight of 3$"):
        SecondModel(model).load(pairs)


def test_a_layer_that_may_make_something_else_of_its_weight_is_not_known(model):
    layer = model[5]
    layer.quant_method = type("Other", (type(layer.quant_method),), {})()
    assert not can_load_beside(model)


def test_a_layer_whose_weight_has_another_form_now_is_not_known(model):
    model[5].weight = nn.Parameter(torch.zeros(SHAPE[::-1]), requires_grad=False)
    assert not can_load_beside(model)


def test_memory_is_taken_in_turns():
    memory = TurnMemory()
    like = torch.empty(1).expand(8, 4)
    first = memory.take(like)
    assert first.shape == like.shape
    assert memory.take(like).data_ptr() != first.data_ptr()
    memory.give_back(first)
    assert memory.take(torch.empty(1).expand(4, 4)).data_ptr() == first.data_ptr()
