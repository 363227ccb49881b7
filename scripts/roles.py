"""Show Sphinx's roles in docstrings as plain code while the site is built.

Docstrings say ``:class:`~sparkswarm.Swarm```, which editors understand and Markdown does not.
"""

from __future__ import annotations

import re
from typing import Any

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>(~?)([\w.]+)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Drop the role before a name, and what leads to the name where a tilde says so."""
    return ROLE.sub(
        lambda found: f"<code>{_short(found[2]) if found[1] else found[2]}</code>", html
    )


def _short(name: str) -> str:
    return name.rpartition(".")[2]
