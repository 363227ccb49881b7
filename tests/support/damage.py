"""What may happen to a file."""

from __future__ import annotations

from pathlib import Path


def flip_a_byte(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    """Take its end away."""
    path.write_bytes(path.read_bytes()[:-7])


def remove(path: Path) -> None:
    """Delete it."""
    path.unlink()
