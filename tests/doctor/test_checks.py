"""``sparkswarm doctor`` finds what is wrong and says what to do."""

from __future__ import annotations

import json
import os
import socket

import pytest
from typer.testing import CliRunner

from sparkswarm.cli import app
from sparkswarm.doctor import checks
from sparkswarm.doctor.checks import Check


def run(*words):
    return CliRunner().invoke(app, ["doctor", *words])


def fake_java(folder, version):
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def test_this_machine_is_fine_or_says_what_to_do():
    result = run("--no-spark", "--json", "-")
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert {"java", "packages", "compiled code", "memory", "disk", "address", "ports"} == set(found)
    assert found["packages"]["verdict"] == "fine"
    assert "pyspark 4." in found["packages"]["found"]
    assert all(check["remedy"] for check in found.values() if check["verdict"] != "fine")
    wrong = [check for check in found.values() if check["verdict"] == "wrong"]
    assert result.exit_code == (1 if wrong else 0)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("17.0.15", "fine"), ("25-ea", "fine"), ("1.8.0_452", "wrong"), ("11.0.2", "wrong")],
)
def test_java_must_be_new_enough(tmp_path, monkeypatch, version, verdict):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    check = checks.java()
    assert check.verdict == verdict
    assert version in check.found
    assert ("install Java 17" in check.remedy) == (verdict == "wrong")


def test_without_java_the_exit_code_is_1_and_the_remedy_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = run()
    assert result.exit_code == 1
    assert f"JAVA_HOME={tmp_path} does not work" in result.stderr
    wanted = (
        "install Java 17 or newer, such as Debian's openjdk-17-jre-headless, or correct JAVA_HOME"
    )
    assert wanted in result.stderr
    assert "spark: not started" in result.stderr


def test_another_spark_than_the_package_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    check = checks.packages()
    assert (check.verdict, "unset SPARK_HOME" in check.remedy) == ("warning", True)


def test_a_folder_that_cannot_be_written_keeps_no_compiled_code(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    check = checks.compiled_code()
    assert check.verdict == "warning"
    assert "NUMBA_CACHE_DIR" in check.remedy


def test_an_address_that_is_not_this_machines_is_wrong(monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.1")
    assert checks.own_address().verdict == "wrong"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert checks.own_address().verdict == "fine"


def test_a_port_in_use_is_a_warning(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(checks, "MAP_PORT", port)
        check = checks.ports()
    assert check.verdict == "warning"
    assert str(port) in check.found


def test_a_check_that_fails_is_a_finding():
    def broken() -> Check:
        raise ValueError("no idea")

    assert checks._attempt(broken).found == "ValueError: no idea"


def test_spark_runs_a_job_and_its_settings_are_looked_at(spark):
    found = {check.name: check for check in checks.spark_checks()}
    assert found["spark"].verdict == "fine"
    assert "1000 rows" in found["spark"].found
    assert found["spark settings"].verdict == "fine", found["spark settings"]
