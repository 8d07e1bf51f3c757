"""`verigrad` with an engine that has a fault from its second push on; run as a script.

python tests/faulty_run.py "stale prefix cache" train configs/quickstart.yaml ...
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace

import grpo.wiring.machinery
from grpo.__main__ import main
from grpo.rollout.pool import RolloutPool

FIRST_FAULTY_VERSION = 2


def build_faulty_engine(fault, options, policy_version):
    """A real engine with one of the faults that the run-time checks are there for."""
    from grpo.rollout.vllm_adapter import VllmEngine

    class FaultyEngine(VllmEngine):
        served = policy_version
        num_damaged = 0

        @property
        def faulty(self):
            return self.served >= FIRST_FAULTY_VERSION

        def receive_weights(self, payload, buffer):
            if (
                self.served >= FIRST_FAULTY_VERSION - 1
                and "corrupted" in fault
                and not (fault.endswith("once") and self.num_damaged)
            ):
                self.num_damaged += 1
                buffer = buffer.copy()
                buffer[payload.plan[-1].offset] ^= 1
            return super().receive_weights(payload, buffer)

        def load_weights(self, version, payload, buffer):
            self.served = version
            if self.faulty and fault == "skipped push":
                return payload.checksum
            return super().load_weights(version, payload, buffer)

        def _drop_caches(self):
            if not (self.faulty and fault == "stale prefix cache"):
                super()._drop_caches()

        def add_request(self, request_id, prompt_ids, seed, sampling):
            if self.faulty and fault == "wrong temperature":
                sampling = replace(sampling, temperature=0.9 * sampling.temperature)
            super().add_request(request_id, prompt_ids, seed, sampling)

    return FaultyEngine(options, policy_version)


if __name__ == "__main__":
    build = functools.partial(build_faulty_engine, sys.argv.pop(1))
    # The one place where a run's parts are built.
    grpo.wiring.machinery.RolloutPool = functools.partial(RolloutPool, build_engine=build)
    sys.exit(main())
