"""Entry point of the command ``sparkswarm`` and of ``python -m sparkswarm``.

Owns what happens if an optional package is missing: one line that names the extra to install.
"""

from __future__ import annotations

import sys

from sparkswarm.errors import MissingExtraError, missing_extra


def main() -> None:
    """Run the command line."""
    try:
        from sparkswarm.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(f"error: {missing_extra(error.name, 'cli')}")
    try:
        app()
    except MissingExtraError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
