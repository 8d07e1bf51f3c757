"""Layers that are loaded in place, one by one, without an engine around them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    # vLLM uses what torch is about to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grpo.rollout.vllm_inplace import InPlaceLoad, TurnMemory, can_load_in_place

NUM_LAYERS = 12
SHAPE = (96, 64)


class Stacked(nn.Module):
    """A linear layer whose weight comes in two halves."""

    def __init__(self, method):
        super().__init__()
        self.quant_method = method
        self.weight = nn.Parameter(torch.zeros(SHAPE), requires_grad=False)
        self.weight.weight_loader = self.load  # pyright: ignore[reportAttributeAccessIssue]

    def load(self, param, loaded_weight, half):
        rows = SHAPE[0] // 2
        param.data.narrow(0, half * rows, rows).copy_(loaded_weight)

    def forward(self, inputs):
        return self.quant_method.apply(self, inputs)


@pytest.fixture
def model():
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("layers are packed on a CPU only")
    current_platform.import_kernels()
    layers = [Stacked(UnquantizedLinearMethod()) for _ in range(NUM_LAYERS)]
    model = nn.ModuleList(layers)
    record_metadata_for_reloading(model)
    for layer in layers:
        layer.quant_method.process_weights_after_loading(layer)
        assert layer.weight.numel() == 0
    return model


def draw():
    return [torch.randn(SHAPE) for _ in range(NUM_LAYERS)]


def load(parameter, weight, half):
    parameter.weight_loader(parameter, weight.chunk(2)[half], half)


def check(model, weights):
    inputs = torch.randn(5, SHAPE[1])
    for layer, weight in zip(model, weights, strict=True):
        assert layer.weight.numel() == 0
        torch.testing.assert_close(layer(inputs), inputs @ weight.T)


@pytest.mark.parametrize("interleaved", [False, True])
def test_every_layer_computes_with_its_own_new_weight(model, interleaved):
    for _ in range(3):
        weights = draw()
        assert can_load_in_place(model)
        loading = InPlaceLoad(model)
        pairs = [(index, half) for index in range(NUM_LAYERS) for half in (0, 1)]
        parameters = [layer.weight for layer in model]
        assert {parameter.shape for parameter in parameters} == {torch.Size(SHAPE)}
        for index, half in sorted(pairs, key=lambda pair: pair[::-1] if interleaved else pair):
            load(parameters[index], weights[index], half)
        loading.finish(torch.float32)
        check(model, weights)


def test_half_a_layer_is_named(model):
    weights = draw()
    loading = InPlaceLoad(model)
    for index, layer in enumerate(model):
        parameter = layer.weight
        for half in (0, 1) if index != 7 else (0,):
            load(parameter, weights[index], half)
    with pytest.raises(ValueError, match=r"lacks weights for 1 layers: 7$"):
        loading.finish(torch.float32)


def test_more_than_a_layer_is_named(model):
    InPlaceLoad(model)
    parameter, weight = model[3].weight, draw()[3]
    load(parameter, weight, 0)
    load(parameter, weight, 1)
    with pytest.raises(ValueError, match=r"more than the whole weight of 3$"):
        load(parameter, weight, 0)


def test_a_layer_that_may_make_something_else_of_its_weight_is_not_known(model):
    layer = model[5]
    layer.quant_method = type("Other", (type(layer.quant_method),), {})()
    assert not can_load_in_place(model)


def test_a_layer_whose_weight_has_another_form_now_is_not_known(model):
    model[5].weight = nn.Parameter(torch.zeros(SHAPE[::-1]), requires_grad=False)
    assert not can_load_in_place(model)


def test_memory_is_taken_in_turns():
    memory = TurnMemory()
    like = torch.empty(1).expand(8, 4)
    first = memory.take(like)
    assert first.shape == like.shape
    assert memory.take(like).data_ptr() != first.data_ptr()
    memory.give_back(first)
    assert memory.take(torch.empty(1).expand(4, 4)).data_ptr() == first.data_ptr()
