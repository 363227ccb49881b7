"""Builds src/sparkswarm/spark/java/packets.jar from the Java source beside it.

Run it after a change of the source: it needs javac, of Java 17 or newer, and the jars of PySpark.
The jar has the source's checksum in its manifest, which a test compares with the source.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

JAVA = Path(__file__).parents[1] / "src/sparkswarm/spark/java"
SOURCE = JAVA / "sparkswarm/Packets.java"
JAR = JAVA / "packets.jar"
WHEN = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Compile, and write the same bytes for the same classes."""
    jars = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        command = ["javac", "--release", "17", "-cp", f"{jars}/*", "-d", folder, str(SOURCE)]
        subprocess.run(command, check=True)
        checksum = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
        manifest = f"Manifest-Version: 1.0\r\nSource: {checksum}\r\n\r\n"
        with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
            jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", WHEN), manifest)
            for path in sorted(Path(folder).rglob("*.class")):
                name = path.relative_to(folder).as_posix()
                jar.writestr(zipfile.ZipInfo(name, WHEN), path.read_bytes())
    sys.stdout.write(f"{JAR.name}: {JAR.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
