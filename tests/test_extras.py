"""Without an extra the rest works, and what needs it names the extra to install."""

import subprocess
import sys

import pytest

HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""
EXTRAS = {
    "duckdb": "bench",
    "rich": "cli",
    "typer": "cli",
    "prometheus_client": "metrics",
    "matplotlib": "plot",
    "confluent_kafka": "kafka",
    "deltalake": "delta",
    "hdfs_native": "hdfs",
}


def run(code: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which some packages cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(packages=hidden) + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_any_extra_the_public_names_can_be_imported():
    done = run(
        "import sparkswarm\nfor name in sparkswarm.__all__: getattr(sparkswarm, name)", *EXTRAS
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["rich", "typer"])
def test_the_command_says_what_to_install(package):
    done = run("from sparkswarm.__main__ import main; main()", package)
    assert done.returncode == 1
    expected = f"error: {package} is not installed; run: pip install 'sparkswarm[cli]'"
    assert done.stderr.strip() == expected


def test_the_command_needs_no_other_extra():
    code = "import sys; sys.argv = ['sparkswarm', {}]; from sparkswarm.__main__ import main; main()"
    done = run(code.format("'--help'"), "matplotlib", "prometheus_client")
    assert done.returncode == 0, done.stderr
    done = run(code.format("'bench', 'balance'"), "matplotlib")
    assert done.returncode == 1
    expected = "error: matplotlib is not installed; run: pip install 'sparkswarm[plot]'"
    assert done.stderr.strip() == expected


def test_what_needs_an_extra_names_it():
    uses = {
        "matplotlib": "import sparkswarm.bench.pictures",
        "duckdb": "from sparkswarm.bench.duckdb_rival import run_duckdb as f; f(None, 1, 1, None)",
        "prometheus_client": "from sparkswarm.observe.metrics import Metrics; Metrics()",
    }
    tries = [*uses.values(), "import sparkswarm.experiments.pictures"]
    code = f"""
import sparkswarm
for code in {tries}:
    try:
        exec(code)
    except sparkswarm.MissingExtraError as error:
        print(error)
"""
    done = run(code, *uses)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{package.replace('_', '-')} is not installed; "
        f"run: pip install 'sparkswarm[{EXTRAS[package]}]'"
        for package in (*uses, "matplotlib")
    ]


def test_without_a_client_of_hdfs_the_extra_is_named():
    code = "from sparkswarm.store.files import Files; Files('hdfs://127.0.0.1:9/x').read('y')"
    done = run(code, "hdfs_native")
    assert done.returncode == 1
    assert "install sparkswarm[hdfs] on the driver and on all workers" in done.stderr
