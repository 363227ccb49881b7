"""The Java classes of Real-time Mode: each jar is that of its source."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

import sparkswarm

PACKAGE = Path(sparkswarm.__file__).parent


@pytest.mark.parametrize(
    ("jar", "name"),
    [("spark/java/packets.jar", "Packets"), ("bench/java/points.jar", "AppendedPoints")],
)
def test_the_jar_is_built_from_the_source(jar: str, name: str) -> None:
    path = PACKAGE / jar
    source = (path.parent / "sparkswarm" / f"{name}.java").read_bytes()
    with zipfile.ZipFile(path) as built:
        manifest = built.read("META-INF/MANIFEST.MF").decode()
        assert f"sparkswarm/{name}.class" in built.namelist()
    checksum = hashlib.sha256(source).hexdigest()
    assert f"Source: {checksum}" in manifest, "run scripts/build_java.py"
