import math
import urllib.error
import urllib.request

import pytest

from grpo.prometheus import HOST_VARIABLE, PORT_VARIABLE, PrometheusEndpoint
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


@pytest.mark.parametrize(("host", "bound"), [(None, "127.0.0.1"), ("0.0.0.0", "0.0.0.0")])
def test_only_this_machine_is_served_unless_it_is_asked_for(tmp_path, monkeypatch, host, bound):
    if host:
        monkeypatch.setenv(HOST_VARIABLE, host)
    endpoint = PrometheusEndpoint(tmp_path, {})
    try:
        assert endpoint._server.server_address[0] == bound
    finally:
        endpoint.close()


def test_an_address_that_is_not_this_machines_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(HOST_VARIABLE, "192.0.2.1")
    with pytest.raises(UserError, match=r"'192\.0\.2\.1' cannot be used.*VERIGRAD_PROMETHEUS_HOST"):
        PrometheusEndpoint(tmp_path, {})


def test_a_port_that_is_taken_is_named(tmp_path, monkeypatch):
    endpoint = PrometheusEndpoint(tmp_path, {})
    monkeypatch.setenv(PORT_VARIABLE, str(endpoint.port))
    with pytest.raises(UserError, match=PORT_VARIABLE):
        PrometheusEndpoint(tmp_path, {})
    endpoint.close()
