"""HDFS for pyarrow.fs, by the client ``hdfs-native``: no JVM, and no libhdfs.

Owns nothing but the opening. Runs on the driver and in tasks, once for each checkpoint and process.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from hdfs_native.fsspec import HdfsFileSystem
from pyarrow import fs


class _Hdfs(HdfsFileSystem):  # type: ignore[misc, unused-ignore]
    """What pyarrow asks for beyond fsspec: when a file was written, and moves that replace."""

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return _with_time(super().info(path, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        listed: list[Any] = super().ls(path, detail, **kwargs)
        return [_with_time(one) for one in listed] if detail else listed

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        super().mv(path1, path2, overwrite=True)


def _with_time(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "mtime": info["modification_time"] / 1000}


def open_hdfs(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a URI such as ``hdfs://host:port/path``, and the path.

    A name of a nameservice in place of host and port is looked up in ``HADOOP_CONF_DIR``.
    """
    parsed = urlparse(uri)
    system = _Hdfs(host=parsed.hostname, port=parsed.port)
    return fs.PyFileSystem(fs.FSSpecHandler(system)), parsed.path
