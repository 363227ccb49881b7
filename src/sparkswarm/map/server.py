"""The web server of the map: one page, its files, the journal from an offset on, and fences.

Owns the routes and who may use them: this machine, or who has the token. Routes are fixed, so a
request's path never becomes a file's path. Read-only and stateless: the journal is read when the
page polls.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import re
import secrets
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sparkswarm.errors import ConfigError
from sparkswarm.map.fences import FenceView
from sparkswarm.observe.journal import read

LOOPBACK = "127.0.0.1"
JSON = "application/json"
JAVASCRIPT = "text/javascript; charset=utf-8"
PAGES: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/map.css": ("map.css", "text/css; charset=utf-8"),
    "/map.js": ("map.js", JAVASCRIPT),
    "/history.js": ("history.js", JAVASCRIPT),
    "/drawing.js": ("drawing.js", JAVASCRIPT),
    "/fences.js": ("fences.js", JAVASCRIPT),
    "/timelines.js": ("timelines.js", JAVASCRIPT),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/land.json": ("land.json", JSON),
}
"""File and content type of each path."""

HEADERS = {
    # If text from the journal ever became a script, the browser would not run it.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

OFFSET = re.compile(r"[0-9]{1,18}")

TOKEN = "token"
"""Name of the token in the URL of the page, and of the cookie with which the page sends it."""


class MapServer(ThreadingHTTPServer):
    """Serves the map of one journal.

    Parameters
    ----------
    journal
        The journal's file; it need not exist yet.
    host
        Address to listen on. With any but loopback, every request needs a token, which is new for
        each server and part of its URL. It is not encrypted on its way.
    port
        Port; 0 takes a free one.

    Raises
    ------
    ConfigError
        If it cannot listen on this address and port.
    """

    daemon_threads = True

    def __init__(self, journal: Path | str, host: str = LOOPBACK, port: int = 0) -> None:
        self.journal = Path(journal)
        self.scene = FenceView(self.journal.parent.parent)
        self.only_loopback = is_loopback(host)
        self.token = "" if self.only_loopback else secrets.token_urlsafe()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        static = files("sparkswarm.map") / "static"
        self.pages = {path: (static / name).read_bytes() for path, (name, _) in PAGES.items()}
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"the map cannot listen on {host}, port {port}: {error}; port 0 takes a free one"
            ) from error

    @property
    def url(self) -> str:
        """URL of the page, with the token if there is one."""
        host, port = str(self.server_address[0]), self.server_port
        query = f"?{TOKEN}={self.token}" if self.token else ""
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{query}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: browsers close connections in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: MapServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sparkswarm", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request."""
        url = urlsplit(self.path)
        if self.server.only_loopback and not _names_loopback(self.headers.get("Host", "")):
            # DNS rebinding: scripts of another site must not read the journal.
            self._refuse(HTTPStatus.FORBIDDEN, "this map is served to this machine only")
        elif self.server.token and not self._has_token_cookie():
            self._log_in(parse_qs(url.query).get(TOKEN, [""])[-1])
        elif url.path in PAGES:
            self._answer(self.server.pages[url.path], PAGES[url.path][1])
        elif url.path == "/events":
            self._events(parse_qs(url.query).get("since", ["0"])[-1])
        elif url.path == "/fences":
            self._answer(self.server.scene.fences(), JSON)
        elif url.path == "/object":
            self._object(parse_qs(url.query))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")

    do_HEAD = do_GET  # noqa: N815

    @property
    def _cookie(self) -> str:
        # Cookies do not know ports.
        return f"{TOKEN}-{self.server.server_port}"

    def _has_token_cookie(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _log_in(self, given: str) -> None:
        """Answer a request without the cookie: where its URL has the token, with the cookie."""
        if not self._is_token(given):
            self._refuse(HTTPStatus.FORBIDDEN, "this map needs the token of the URL that it gave")
            return
        cookie = f"{self._cookie}={given}; HttpOnly; SameSite=Strict; Path=/"
        # Away from the URL with the token, so that nobody copies it from there.
        headers = {"Set-Cookie": cookie, "Location": "/"}
        self._answer(b"", "text/plain; charset=utf-8", HTTPStatus.SEE_OTHER, headers)

    def _events(self, since: str) -> None:
        if not OFFSET.fullmatch(since):
            self._refuse(HTTPStatus.BAD_REQUEST, "since must be an offset in bytes, a whole number")
            return
        chunk = read(self.server.journal, int(since))
        offsets = {"Start": chunk.start, "Stop": chunk.stop, "End": chunk.end}
        headers = {f"Journal-{name}": str(offset) for name, offset in offsets.items()}
        self._answer(chunk.lines, "application/jsonl; charset=utf-8", headers=headers)

    def _object(self, query: Mapping[str, list[str]]) -> None:
        try:
            x, y = (float(query[name][-1]) for name in ("x", "y"))
        except (KeyError, ValueError):
            x = y = math.nan
        if not (math.isfinite(x) and math.isfinite(y)):
            self._refuse(HTTPStatus.BAD_REQUEST, "x and y must be two finite numbers")
            return
        self._answer(self.server.scene.nearest(x, y), JSON)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(why.encode(), "text/plain; charset=utf-8", status)

    def _answer(
        self,
        body: bytes,
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        always = {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}
        for name, value in {**always, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page polls every second."""


def serve_in_background(journal: Path | str, port: int = 0) -> str:
    """Serve the map to this machine until the process ends; return its URL."""
    server = MapServer(journal, LOOPBACK, port)
    threading.Thread(target=server.serve_forever, name="map", daemon=True).start()
    return server.url


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _names_loopback(host_header: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host_header}").hostname or "")
    except ValueError:
        return False
