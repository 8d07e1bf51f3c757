"""The configuration of a run: its schema, and how a file and overrides become one."""

from grpo.config.data import DataConfig
from grpo.config.load import load_config
from grpo.config.schema import RunConfig

__all__ = ["DataConfig", "RunConfig", "load_config"]
