"""The Java class of Real-time Mode: the jar is that of the source."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import sparkswarm.spark

JAVA = Path(sparkswarm.spark.__file__).parent / "java"


def test_the_jar_is_built_from_the_source() -> None:
    source = hashlib.sha256((JAVA / "sparkswarm" / "Packets.java").read_bytes()).hexdigest()
    with zipfile.ZipFile(JAVA / "packets.jar") as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
        assert "sparkswarm/Packets.class" in jar.namelist()
    assert f"Source: {source}" in manifest, "run scripts/build_java.py"
