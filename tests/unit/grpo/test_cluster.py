import pytest

from grpo.cluster import start_ray
from grpo.config.sections import RayConfig
from verifiers.errors import UserError


def test_a_ray_that_does_not_come_up_in_time_is_named_with_what_to_look_at(monkeypatch):
    def start(**_):
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    monkeypatch.setattr("ray.init", start)
    with pytest.raises(UserError, match=r"timed out during startup\. Usual causes .* busy"):
        start_ray(RayConfig())
