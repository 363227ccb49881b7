"""The map's server: fixed routes, strict headers, the journal from an offset on."""

import http.client
import socket
import threading

import pytest
from typer import Typer
from typer.testing import CliRunner

from sparkswarm.errors import ConfigError
from sparkswarm.map import cli
from sparkswarm.map.server import PAGES, MapServer, is_loopback, serve_in_background
from sparkswarm.observe.journal import Journal, read

from ..support.runs import wandering


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    write = Journal(path, "swarm")
    for told in wandering(5):
        write(*told)
    return path


@pytest.fixture
def server(journal):
    with MapServer(journal) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def ask(server):
    """Return a function that asks the server of a journal: (status, headers, body)."""

    def ask(path, method="GET", **headers):
        connection = http.client.HTTPConnection(*server.server_address)
        # putrequest sends the path as it is, dots and all.
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    return ask


@pytest.mark.parametrize("path", PAGES)
def test_the_page_and_its_files_are_served(ask, path):
    status, headers, body = ask(path)
    assert status == 200
    assert headers["Content-Type"] == PAGES[path][1]
    assert len(body) > 100


@pytest.mark.parametrize("path", ["/", "/map.js", "/events", "/nothing"])
def test_every_answer_forbids_scripts_from_elsewhere(ask, path):
    _, headers, _ = ask(path)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Access-Control-Allow-Origin"] is None


def test_the_page_names_nothing_from_elsewhere(ask):
    for path in PAGES:
        if path.endswith((".js", ".css")) or path == "/":
            text = ask(path)[2].decode()
            assert "//" not in text.replace("// ", "").replace("//\n", ""), path
            assert "innerHTML" not in text, path


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py", "/static/../../errors.py", "/%2e%2e/server.py", "//etc/passwd",
        "/..%2f..%2fpyproject.toml", "/map.js/..", "/index.html%00", "/journal.jsonl", "/C:/x",
        "/events/../map.js", "/./map.js",
    ],
)  # fmt: skip
def test_nothing_but_the_routes_is_served(ask, path):
    status, _, body = ask(path)
    assert status == 404
    assert body == b"not found"


def test_the_journal_comes_whole_and_then_only_its_news(ask, journal):
    status, headers, body = ask("/events")
    assert status == 200
    assert body == journal.read_bytes()
    assert [headers[f"Journal-{name}"] for name in ("Start", "Stop", "End")] == [
        "0", str(len(body)), str(len(body))
    ]  # fmt: skip
    middle = read(journal, 0, 10).stop
    assert ask(f"/events?since={middle}")[2] == body[middle:]
    assert ask(f"/events?since={len(body)}")[2] == b""


def test_a_journal_that_is_not_there_yet_is_no_error(ask, journal):
    journal.unlink()
    status, headers, body = ask("/events?since=0")
    assert (status, body, headers["Journal-Stop"]) == (200, b"", "0")


@pytest.mark.parametrize("since", ["-1", "x", "1e3", "9" * 30, "%00", "0x10", "1;2"])
def test_an_offset_that_is_none_is_refused(ask, since):
    assert ask(f"/events?since={since}")[0] == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(ask, method):
    assert ask("/", method)[0] == 501


def test_head_has_no_body(server):
    with socket.create_connection(server.server_address) as connection:
        connection.sendall(b"HEAD /map.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")
    assert int(answer.lower().split(b"content-length: ")[1].split()[0]) > 100


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "["])
def test_another_name_that_leads_here_is_refused(ask, host):
    assert ask("/events", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_this_machine_s_names_are_served(ask, host):
    assert ask("/events", Host=host)[0] == 200


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True),
     ("0.0.0.0", False), ("::", False), ("192.168.0.1", False), ("x.org", False), ("", False)],
)  # fmt: skip
def test_which_hosts_are_loopback(host, only_here):
    assert is_loopback(host) is only_here


def test_it_listens_to_this_machine_only_unless_told(journal):
    with MapServer(journal) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_an_address_of_version_six_stands_in_brackets(journal):
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        server = MapServer(journal, "::1")
    except ConfigError:
        pytest.skip("this machine has no IPv6 loopback")
    with server:
        assert server.url == f"http://[::1]:{server.server_port}/"


def test_in_the_background_it_gives_its_address(journal):
    url = serve_in_background(journal)
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port))
    connection.request("GET", "/events")
    assert connection.getresponse().read() == journal.read_bytes()
    connection.close()


def test_a_port_that_is_taken_is_explained(journal):
    with MapServer(journal) as server, pytest.raises(ConfigError, match="cannot listen"):
        MapServer(journal, port=server.server_port)


# -- the command -----------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch):
    """Run ``map`` with some arguments, its server stopped at once; return result and server."""
    app, served = Typer(), []
    app.command("map")(cli.map_)

    def stop_at_once(server):
        served.append(server)
        raise KeyboardInterrupt

    monkeypatch.setattr(MapServer, "serve_forever", stop_at_once)
    opened = []
    monkeypatch.setattr(cli.webbrowser, "open", opened.append)

    def run(*arguments):
        served.clear()
        opened.clear()
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        return result, served[0] if served else None, list(opened)

    return run


def test_the_command_serves_the_journal_of_a_checkpoint(command, tmp_path, journal):
    (tmp_path / "journal").mkdir()
    moved = journal.rename(tmp_path / "journal" / "journal.jsonl")
    result, server, opened = command(tmp_path, "--port", 0)
    assert result.exit_code == 130
    assert server.journal == moved
    assert opened == [server.url]
    assert server.url in result.stderr
    assert "warning" not in result.stderr
    assert "does not exist yet" not in result.stderr


def test_the_command_opens_no_browser_when_told_not_to(command, journal):
    _, server, opened = command(f"file://{journal}", "--port", 0, "--no-browser")
    assert server.journal == journal
    assert opened == []


def test_the_command_warns_where_others_can_read(command, journal):
    result, server, _ = command(journal, "--port", 0, "--host", "0.0.0.0", "--no-browser")
    assert "warning" in result.stderr
    assert not server.only_loopback
    assert server.token in "".join(result.stderr.split())


@pytest.fixture
def open_server(journal):
    with MapServer(journal, "0.0.0.0") as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def ask_from_outside(open_server):
    def ask(path, cookie=None):
        connection = http.client.HTTPConnection("127.0.0.1", open_server.server_port)
        headers = {"Host": "sparkswarm.example"} | ({"Cookie": cookie} if cookie else {})
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, response.headers

    return ask


@pytest.mark.parametrize("path", [*PAGES, "/events", "/?token=", "/?token=guessed", "/nothing"])
def test_other_machines_need_the_token(ask_from_outside, open_server, path):
    port = open_server.server_port
    assert ask_from_outside(path)[0] == 403
    assert ask_from_outside(path, f"token-{port}=guessed")[0] == 403
    assert ask_from_outside(path, f"token-{port}=")[0] == 403
    assert ask_from_outside(path, "\x00;=,")[0] == 403


def test_the_url_with_the_token_opens_the_page_and_leaves_the_address(
    ask_from_outside, open_server
):
    path = open_server.url.partition(f":{open_server.server_port}")[2]
    status, headers = ask_from_outside(path)
    assert (status, headers["Location"]) == (303, "/")
    cookie, _, attributes = headers["Set-Cookie"].partition(";")
    assert {"HttpOnly", "SameSite=Strict"} <= set(attributes.replace(" ", "").split(";"))
    for path in (*PAGES, "/events"):
        assert ask_from_outside(path, cookie)[0] == 200, path


def test_a_token_is_long_and_of_one_server(journal):
    with MapServer(journal, "0.0.0.0") as one, MapServer(journal, "0.0.0.0") as other:
        assert one.token != other.token
        assert len(one.token) >= 32
    with MapServer(journal) as local:
        assert not local.token
        assert "token" not in local.url


def test_the_command_waits_for_a_run_that_has_not_begun(command, tmp_path):
    result, server, _ = command(tmp_path / "later", "--port", 0, "--no-browser")
    assert "does not exist yet" in result.stderr
    assert server.journal == tmp_path / "later" / "journal" / "journal.jsonl"


def test_the_command_explains_what_it_cannot_do(command, journal):
    result, server, _ = command("s3://bucket/run", "--no-browser")
    assert result.exit_code == 1
    assert "local file" in result.stderr
    assert server is None
    with MapServer(journal) as other:
        result, _, _ = command(journal, "--port", other.server_port, "--no-browser")
    assert result.exit_code == 1
    assert "cannot listen" in result.stderr
