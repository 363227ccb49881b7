"""The commands of ``sparkswarm bench``."""

from __future__ import annotations

import typer

from sparkswarm.bench.protocol_commands import balance, control, overhead
from sparkswarm.bench.spark_commands import adapt, apps, cluster, engine, fences, latency, replay

bench = typer.Typer(help="Run a benchmark.", no_args_is_help=True)
for command in (balance, overhead, control, fences, engine, latency, adapt, replay, apps, cluster):
    bench.command()(command)
