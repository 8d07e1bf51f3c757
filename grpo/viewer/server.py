"""Serves the page and what it shows, to this machine only."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, cast

from grpo.viewer.reading import Kind, RunReader
from verifiers.errors import UserError

HOST = "127.0.0.1"
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/charts.js": ("charts.js", "text/javascript"),
}
_ROUTE = re.compile(r"/api/(\d+)/(overview|metrics|(rollouts|evaluations)/(\d+))")
_HEADERS = {
    # Completions are a model's text: nothing in them may be loaded, sent or run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Viewer(ThreadingHTTPServer):
    """The server of the page.

    Args:
        runs: Shown together; the first is the one whose completions are shown first.
        port: 0 takes a free one.

    Raises:
        UserError: The port is taken.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[RunReader], port: int) -> None:
        self.runs = runs
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(
                f"Port {port} cannot be used: {error.strerror}. Give another with --port, or "
                "--port 0 for any that is free."
            ) from None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: Viewer  # pyright: ignore[reportIncompatibleVariableOverride] - always made by Viewer

    def do_GET(self) -> None:
        if not self._asked_by_name_of_this_machine():
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path in _FILES:
            name, kind = _FILES[self.path]
            body = resources.files("grpo.viewer").joinpath("page", name).read_bytes()
            self._answer(body, f"{kind}; charset=utf-8")
        elif self.path == "/api/runs":
            self._answer_json([run.name for run in self.server.runs])
        elif match := _ROUTE.fullmatch(self.path):
            self._answer_about_a_run(match)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _asked_by_name_of_this_machine(self) -> bool:
        """Whether the browser was pointed here, not by a foreign site's name for it."""
        name = self.headers.get("Host", "").rpartition(":")[0]
        return name in (HOST, "localhost")

    def _answer_about_a_run(self, match: re.Match[str]) -> None:
        number, what, kind, step = match.groups()
        if int(number) >= len(self.server.runs):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            self._answer_json(_read(self.server.runs[int(number)], what, kind, step))
        except FileNotFoundError:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer_json(self, value: Any) -> None:
        self._answer(json.dumps(value).encode(), "application/json")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal free of a line for each request."""


def _read(run: RunReader, what: str, kind: str | None, step: str | None) -> Any:
    if kind is not None and step is not None:
        return run.read_rollouts(cast("Kind", kind), int(step))  # the route lets no other pass
    return run.read_overview() if what == "overview" else run.read_metrics()
