"""What a new run's folder has before its first step."""

from __future__ import annotations

from dataclasses import asdict

from grpo.cluster import describe_cluster
from grpo.config import RunConfig
from grpo.environment import describe_environment, describe_sandbox
from grpo.resuming import ENVIRONMENT, FORKED_FROM, Start
from grpo.rollout.protocol import EngineFacts
from grpo.run_directory import RunDirectory


def make_folder(config: RunConfig, start: Start | None) -> RunDirectory:
    """Make the folder of a run, with its configuration, what it runs on and what it comes from.

    Args:
        config: Of the run.
        start: What it is forked from; None where it begins with the bare model.
    """
    directory = RunDirectory.create(config.output_dir, config.run_name)
    directory.write_config(config)
    write_environment(directory, config)
    if start is not None:
        directory.write_json(FORKED_FROM, {"checkpoint": str(start.checkpoint)})
    return directory


def write_environment(
    directory: RunDirectory, config: RunConfig, engine: EngineFacts | None = None
) -> None:
    """Write down what the run runs on; its engines are known once they are up."""
    facts = describe_environment() | describe_cluster(config.ray)
    facts["sandbox"] = describe_sandbox(config.sandbox)
    directory.write_json(ENVIRONMENT, facts | ({"engine": asdict(engine)} if engine else {}))
