"""The command ``sparkswarm doctor``: its options and output."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sparkswarm.doctor.checks import Check, machine_checks, spark_checks
from sparkswarm.terminal import JsonOption, exit_on_error, stderr, write_json

WITHOUT_JAVA = Check("spark", "wrong", "not started, because Java does not work", "see java, above")

STYLES = {"fine": "green", "warning": "yellow", "wrong": "bold red"}


def doctor(
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Start Spark and run a small job.")
    ] = True,
    json: JsonOption = None,
) -> None:
    """Check Java, packages, compiled code, memory, disk, ports and Spark, and say what to do.

    Example: sparkswarm doctor

    Exit codes: 1 something is wrong, 2 wrong usage, 130 interrupted. Warnings are no error.
    """
    checks: list[Check] = []

    def show(check: Check) -> None:
        checks.append(check)
        stderr.print(f"[{STYLES[check.verdict]}]{check.verdict:>7}[/]  ", end="")
        stderr.print(f"{check.name}: {check.found}", markup=False, highlight=False, soft_wrap=True)
        if check.remedy:
            text = f"         -> {check.remedy}"
            stderr.print(text, markup=False, highlight=False, soft_wrap=True)

    with exit_on_error():
        for check in machine_checks():
            show(check)
        has_java = not any(one.name == "java" and one.verdict == "wrong" for one in checks)
        for check in (spark_checks() if has_java else [WITHOUT_JAVA]) if spark else []:
            show(check)
        write_json(json, {"checks": [asdict(check) for check in checks]})
    if any(check.verdict == "wrong" for check in checks):
        raise typer.Exit(1)
