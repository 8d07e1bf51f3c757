"""A run's newest metrics on a page that Prometheus reads."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from verifiers.errors import UserError

HOST_VARIABLE = "VERIGRAD_PROMETHEUS_HOST"
PORT_VARIABLE = "VERIGRAD_PROMETHEUS_PORT"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9464
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PrometheusEndpoint:
    """Serves `/metrics` while the run goes on, to this machine alone if nothing else is said.

    The address is that of `VERIGRAD_PROMETHEUS_HOST`, or 127.0.0.1, and the port that of
    `VERIGRAD_PROMETHEUS_PORT`, or 9464. Each metric is a gauge named
    `verigrad_` and its name with underscores, with the run's folder as the label `run`.

    Args:
        folder: The run's.
        _config: Not shown.

    Raises:
        UserError: Address and port cannot be used.
    """

    def __init__(self, folder: Path, _config: Mapping[str, Any]) -> None:
        self._run = folder.name
        self._values: dict[str, float] = {}
        self._lock = threading.Lock()
        host = os.environ.get(HOST_VARIABLE, DEFAULT_HOST)
        chosen = os.environ.get(PORT_VARIABLE, str(DEFAULT_PORT))
        try:
            self._server = _Server((host, int(chosen)), self.render)
        except (OSError, ValueError, OverflowError) as error:
            raise UserError(
                f"report_to names prometheus, but port {chosen!r} of {host!r} cannot be used: "
                f"{error}. Set {PORT_VARIABLE} to another port, 0 being any that is free, or "
                f"{HOST_VARIABLE} to another address of this machine, 0.0.0.0 being all of them."
            ) from None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_address[1]

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a step's metrics; those that it lacks keep their last value."""
        with self._lock:
            self._values.update({"step": float(step), **metrics})

    def render(self) -> str:
        """The page."""
        run = self._run.replace("\\", r"\\").replace('"', r"\"")
        with self._lock:
            values = dict(self._values)
        lines: list[str] = []
        for name, value in sorted(values.items()):
            known = "verigrad_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
            lines += [f"# TYPE {known} gauge", f'{known}{{run="{run}"}} {float(value)!r}']
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], render: Any) -> None:
        self.render = render
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        page = cast("_Server", self.server).render().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a request comes every few seconds."""
