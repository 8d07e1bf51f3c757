import pytest

from grpo.devices import GpuShares, share_gpus
from verifiers.errors import UserError


@pytest.mark.parametrize(
    ("available", "engines", "spans", "ranks", "shares"),
    [
        (2, 1, 1, 1, GpuShares(engine=1.0, rank=1.0)),
        (8, 2, 2, 4, GpuShares(engine=2.0, rank=1.0)),
        (1, 1, 1, 1, GpuShares(engine=0.5, rank=0.5)),
        (4, 4, 1, 4, GpuShares(engine=0.5, rank=0.5)),
        (4, 4, 1, 2, GpuShares(engine=0.5, rank=0.5)),
        (2, 1, 2, 0, GpuShares(engine=2.0, rank=1.0)),
    ],
)
def test_actors_get_their_own_gpus_or_halves(available, engines, spans, ranks, shares):
    found = share_gpus(available, num_engines=engines, tensor_parallel_size=spans, world_size=ranks)
    assert found == shares
    assert engines * found.engine + ranks * found.rank <= available


@pytest.mark.parametrize(
    ("available", "engines", "spans", "ranks", "fewest"),
    [(0, 1, 1, 1, 1), (2, 3, 1, 1, 3), (2, 1, 2, 1, 3)],
)
def test_too_few_gpus_are_told_before_anything_waits_for_them(
    available, engines, spans, ranks, fewest
):
    with pytest.raises(UserError, match=f"or {fewest} at least; there are {available}"):
        share_gpus(available, num_engines=engines, tensor_parallel_size=spans, world_size=ranks)
