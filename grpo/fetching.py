"""Brings a model's files from the hub to the nodes that load it, before anything waits for them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verifiers.errors import UserError

_WEIGHTS = "*.safetensors"
_OLDER_WEIGHTS = "*.bin"
_REST = ("*.json", "*.txt", "*.model", "*.jinja")
# Copies of the weights in other forms, in many repositories.
_OTHER_FORMS = ("original/*", "onnx/*")


def fetch_model(model: str) -> Path:
    """The model's folder on this machine, which is fetched from the hub if it is not there.

    Args:
        model: A folder or a hub id.

    Raises:
        UserError: The hub does not give it.
    """
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    def fetch(*patterns: str) -> Path:
        return Path(
            snapshot_download(
                model, allow_patterns=list(patterns), ignore_patterns=list(_OTHER_FORMS)
            )
        )

    try:
        folder = fetch(_WEIGHTS, *_REST)
        return folder if any(folder.glob(_WEIGHTS)) else fetch(_OLDER_WEIGHTS, *_REST)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        cause = " ".join(str(error).split())
        raise UserError(
            f"The weights of model={model!r} did not come from the hub: {cause} Without a "
            "connection give a model's folder. Behind a mirror set HF_ENDPOINT; for a gated model, "
            "HF_TOKEN; with a filled cache, HF_HUB_OFFLINE=1."
        ) from error


def fetch_to_nodes(model: str, node_ids: Collection[str], say: Callable[[str], None]) -> None:
    """Have a model on every node that will load it; this one shows how far it is.

    Args:
        model: A folder, which is not copied, or a hub id.
        node_ids: Ray's, of the nodes.
        say: Told what is fetched where.

    Raises:
        UserError: The hub does not give it to one of them.
    """
    if Path(model).is_dir():
        return
    here = ray.get_runtime_context().get_node_id()
    others = sorted(set(node_ids) - {here})
    say(f"model      {model} from the hub, or its cache, on {len(set(node_ids))} node(s)")
    calls = [_start_fetching(model, node_id) for node_id in others]
    if here in node_ids:
        fetch_model(model)
    for node_id, call in zip(others, calls, strict=True):
        if (complaint := ray.get(call)) is not None:
            raise UserError(f"On node {node_id[:8]}: {complaint}")


def _start_fetching(model: str, node_id: str) -> ray.ObjectRef[str | None]:
    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return _try_fetching.options(scheduling_strategy=place).remote(model)


@ray.remote(num_cpus=0)
def _try_fetching(model: str) -> str | None:
    """On another node: fetch the model; what is wrong, if it does not come."""
    try:
        fetch_model(model)
    except UserError as error:
        return str(error)
    return None
