"""A Ray that is up, and a run prepared for the devices that it will compute on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from grpo.cluster import find_cluster_device, start_ray, stop_ray
from grpo.config import RunConfig
from grpo.environment import find_device
from grpo.inputs import Inputs
from grpo.preparation import Prepared, prepare
from grpo.rollout.options import Device

Prepare = Callable[[RunConfig, Inputs, Device], Prepared]


@contextmanager
def running_ray(
    config: RunConfig, inputs: Inputs, prepare: Prepare = prepare
) -> Iterator[Prepared]:
    """Have Ray running, and the run prepared.

    Args:
        config: Of the run.
        inputs: Its data and verifiers.
        prepare: Told what engines and learner ranks compute on, which is found out here and
            nowhere else: all that comes later reads it off what was prepared, or off the placement.

    Raises:
        UserError: The cluster does not answer, or something the user gave is wrong.
    """
    try:
        yield _start(config, inputs, prepare)
    finally:
        stop_ray()


def _start(config: RunConfig, inputs: Inputs, prepare: Prepare) -> Prepared:
    if config.ray.address is not None:
        # The machine that this runs on may be one without GPUs: only the cluster knows.
        start_ray(config.ray)
        return prepare(config, inputs, find_cluster_device())
    with ThreadPoolExecutor(max_workers=1) as background:
        # Importing the tokenizer's library takes as long as Ray's start, and neither needs the
        # other.
        preparing = background.submit(prepare, config, inputs, find_device())
        start_ray(config.ray)
        return preparing.result()
