"""Builds the jars of src/sparkswarm from the Java source beside each.

Run it after a change of a source: it needs javac, of Java 17 or newer, and the jars of PySpark.
A jar has its source's checksum in its manifest, which a test compares with the source.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

PACKAGE = Path(__file__).parents[1] / "src/sparkswarm"
SOURCES = {
    PACKAGE / "spark/java/packets.jar": "sparkswarm/Packets.java",
    PACKAGE / "bench/java/points.jar": "sparkswarm/AppendedPoints.java",
}
WHEN = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Compile all sources."""
    for jar, source in SOURCES.items():
        build(jar, jar.parent / source)


def build(target: Path, source: Path) -> None:
    """Compile a source, and write the same bytes for the same classes."""
    jars = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        command = ["javac", "--release", "17", "-cp", f"{jars}/*", "-d", folder, str(source)]
        subprocess.run(command, check=True)
        checksum = hashlib.sha256(source.read_bytes()).hexdigest()
        manifest = f"Manifest-Version: 1.0\r\nSource: {checksum}\r\n\r\n"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as jar:
            jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", WHEN), manifest)
            for path in sorted(Path(folder).rglob("*.class")):
                name = path.relative_to(folder).as_posix()
                jar.writestr(zipfile.ZipInfo(name, WHEN), path.read_bytes())
    sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
