import math
import urllib.error
import urllib.request

import pytest

from grpo.prometheus import PORT_VARIABLE, PrometheusEndpoint
from grpo.trackers import open_trackers
from verifiers.errors import UserError


@pytest.fixture(autouse=True)
def _any_port(monkeypatch):
    monkeypatch.setenv(PORT_VARIABLE, "0")


def read(endpoint, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def test_the_newest_value_of_each_metric_is_a_gauge(tmp_path):
    with open_trackers(["prometheus"], tmp_path / 'odd"run', {}) as (endpoint,):
        assert isinstance(endpoint, PrometheusEndpoint)
        assert read(endpoint) == "\n"
        endpoint.log(1, {"time/step": 2.5, "loss": math.nan})
        endpoint.log(2, {"time/step": 1.5})
        page = read(endpoint)
        assert '# TYPE verigrad_time_step gauge\nverigrad_time_step{run="odd\\"run"} 1.5' in page
        assert '\nverigrad_step{run="odd\\"run"} 2.0' in page
        assert '\nverigrad_loss{run="odd\\"run"} nan' in page
        with pytest.raises(urllib.error.HTTPError):
            read(endpoint, "/other")
    with pytest.raises(urllib.error.URLError):
        read(endpoint)


def test_a_port_that_is_taken_is_named(tmp_path, monkeypatch):
    endpoint = PrometheusEndpoint(tmp_path, {})
    monkeypatch.setenv(PORT_VARIABLE, str(endpoint.port))
    with pytest.raises(UserError, match=PORT_VARIABLE):
        PrometheusEndpoint(tmp_path, {})
    endpoint.close()
