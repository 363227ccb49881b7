"""The scripts behind `make setup`, run against made-up machines, and the lock file."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SH = shutil.which("sh")


class Machine:
    """A machine whose PATH holds only what a test puts there."""

    def __init__(self, directory: Path):
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.log = directory / "log"
        self.log.touch()
        # What the scripts need for being run at all.
        for tool in ("cp", "env", "true"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.command("id", "echo 1000")

    def command(self, name: str, body: str, directory: Path | None = None) -> Path:
        """Put a command there that notes how it was called and then runs ``body``."""
        path = (directory or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!{SH}\necho "{name} $*" >>"{self.log}"\n{body}\n')
        path.chmod(0o755)
        return path

    def java(self, version: str, directory: Path | None = None) -> Path:
        output = f'openjdk version "{version}" 2025-04-15\\nOpenJDK Runtime Environment\\n'
        return self.command("java", f"printf '{output}' >&2", directory)

    def root(self) -> None:
        self.command("id", "echo 0")

    def sudo(self, *, password: bool) -> None:
        self.command("sudo", "exit 1" if password else '[ "$1" = -n ] && shift\nexec "$@"')

    def apt_get(self, gives: str = "17.0.15", lacks: str = "nothing") -> None:
        """Have an apt-get that installs a java of version ``gives`` but not package ``lacks``."""
        java = self.java(gives, self.bin.parent / "package")
        self.command(
            "apt-get",
            f'[ -n "$DEBIAN_FRONTEND" ] || exit 9\n'
            f'case "$*" in\n'
            f"*{lacks}*) exit 100 ;;\n"
            f"*--simulate*) ;;\n"
            f'*install*chromium) cp "{java}" "{self.bin}/chromium" ;;\n'
            f'*install*) cp "{java}" "{self.bin}/java" ;;\n'
            f"esac",
        )

    def run(self, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SH, str(ROOT / "scripts" / script), *args],
            env={"PATH": str(self.bin), **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def installed(self) -> list[str]:
        """List the packages apt-get really installed."""
        calls = [line.split() for line in self.log.read_text().splitlines()]
        return [
            call[-1]
            for call in calls
            if call[0] == "apt-get" and "install" in call and "--simulate" not in call
        ]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17", "17.0.15", "17-ea", "21", "21.0.7+6", "25-ea", "100.1"])
def test_new_enough_java_is_accepted_in_silence(machine, version):
    machine.java(version)
    done = machine.run("check-java.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("version", ["1.8.0_452", "1.7", "9", "11", "11.0.27", "16.0.2", "odd"])
def test_old_java_is_refused_with_its_version(machine, version):
    machine.java(version)
    done = machine.run("check-java.sh")
    assert done.returncode == 1
    assert version in done.stderr


def test_lines_before_the_version_are_skipped(machine):
    machine.command(
        "java",
        'echo "Picked up JAVA_TOOL_OPTIONS: -Da=\\"11\\" -Dversion=8" >&2\n'
        'echo "java version \\"21.0.1\\" 2023-10-17 LTS" >&2',
    )
    assert machine.run("check-java.sh").returncode == 0


def test_java_that_does_not_run_counts_as_none(machine):
    # As on a Mac, where /usr/bin/java is there before any Java is.
    machine.command("java", 'echo "no version \\"17\\" here" >&2; exit 1')
    done = machine.run("check-java.sh")
    assert done.returncode == 1
    assert "no working 'java'" in done.stderr


def test_java_home_goes_before_path(machine, tmp_path):
    machine.java("11")
    machine.java("21", tmp_path / "home" / "bin")
    assert machine.run("check-java.sh", JAVA_HOME=str(tmp_path / "home")).returncode == 0


@pytest.mark.parametrize("version", ["1.8.0_452", None])
def test_bad_java_home_is_named_and_nothing_is_installed(machine, tmp_path, version):
    machine.java("21")
    machine.root()
    machine.apt_get()
    if version:
        machine.java(version, tmp_path / "home" / "bin")
    done = machine.run("check-java.sh", JAVA_HOME=str(tmp_path / "home"))
    assert done.returncode == 1
    assert "unset JAVA_HOME" in done.stderr
    assert not machine.installed()


@pytest.mark.parametrize("old", [None, "11.0.27"])
def test_root_installs_java(machine, old):
    if old:
        machine.java(old)
    machine.root()
    machine.apt_get()
    done = machine.run("check-java.sh")
    assert done.returncode == 0, done.stderr
    assert "Installed Java 17.0.15" in done.stderr
    assert machine.installed() == ["openjdk-17-jre-headless"]
    calls = machine.log.read_text()
    assert calls.index(" update") < calls.index(" install")
    assert "sudo" not in calls


def test_passwordless_sudo_installs_java(machine):
    machine.sudo(password=False)
    machine.apt_get()
    done = machine.run("check-java.sh")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == ["openjdk-17-jre-headless"]
    assert "sudo env DEBIAN_FRONTEND=noninteractive apt-get" in machine.log.read_text()


def test_default_java_is_installed_where_17_is_not_to_be_had(machine):
    machine.root()
    machine.apt_get(gives="21.0.7", lacks="openjdk-17")
    done = machine.run("check-java.sh")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == ["default-jre-headless"]


def test_failed_update_does_not_stop_the_installation(machine):
    machine.root()
    machine.apt_get(lacks="update")
    done = machine.run("check-java.sh")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == ["openjdk-17-jre-headless"]


def test_failed_installation_is_told(machine):
    machine.root()
    machine.apt_get(lacks="install")
    done = machine.run("check-java.sh")
    assert done.returncode == 1
    assert "apt-get install -y" in done.stderr


def test_installed_java_that_path_does_not_lead_to_is_told(machine):
    machine.root()
    machine.apt_get(gives="11.0.27")
    done = machine.run("check-java.sh")
    assert done.returncode == 1
    assert "update-alternatives --config java" in done.stderr


@pytest.mark.parametrize("sudo", ["absent", "asks for a password"])
def test_one_command_is_told_where_it_may_not_install(machine, sudo):
    if sudo != "absent":
        machine.sudo(password=True)
    machine.apt_get()
    done = machine.run("check-java.sh")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].strip() == (
        "sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless"
    )
    assert not machine.installed()


def test_no_apt_get_is_told(machine):
    machine.root()
    done = machine.run("check-java.sh")
    assert done.returncode == 1
    assert "Install a Java 17 runtime" in done.stderr
    machine.command("brew", "")
    assert "brew install" in machine.run("check-java.sh").stderr


def test_a_chromium_that_is_there_is_accepted_in_silence(machine):
    machine.command("google-chrome", "")
    done = machine.run("check-chromium.sh", CI="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("ci", ["", "true"])
def test_root_installs_chromium(machine, ci):
    machine.root()
    machine.apt_get()
    done = machine.run("check-chromium.sh", CI=ci)
    assert done.returncode == 0, done.stderr
    assert machine.installed() == ["chromium"]


@pytest.mark.parametrize("lacks", ["apt-get", "root", "package"])
def test_a_missing_chromium_fails_on_ci_and_nowhere_else(machine, lacks):
    if lacks != "apt-get":
        machine.apt_get(lacks="install" if lacks == "package" else "nothing")
    if lacks != "root":
        machine.root()
    done = machine.run("check-chromium.sh")
    assert done.returncode == 0
    assert "are skipped" in done.stderr
    assert machine.run("check-chromium.sh", CI="true").returncode == 1


def python_stub(machine: Machine, name: str, *, new: bool = True, venv: bool = True) -> None:
    """Put a Python there that answers just the questions that make-venv.sh asks."""
    machine.command(
        name,
        f'case "$*" in\n'
        f"*version_info*3,*11*) exit {0 if new else 1} ;;\n"
        f"*print*) echo 3.12 ;;\n"
        f"--version) echo Python 3.9.2 ;;\n"
        f"*ensurepip*) exit {0 if venv else 1} ;;\n"
        f"esac",
    )


def test_missing_python_is_told(machine, tmp_path):
    done = machine.run("make-venv.sh", str(tmp_path / "venv"))
    assert done.returncode == 1
    assert "there is no 'python3'" in done.stderr
    assert "sudo apt-get install -y python3 python3-venv" in done.stderr


def test_old_python_is_told(machine, tmp_path):
    python_stub(machine, "python3", new=False)
    done = machine.run("make-venv.sh", str(tmp_path / "venv"))
    assert done.returncode == 1
    assert "'python3' is Python 3.9.2" in done.stderr


def test_newer_python_is_found_under_its_full_name(machine, tmp_path):
    python_stub(machine, "python3", new=False)
    python_stub(machine, "python3.12")
    done = machine.run("make-venv.sh", str(tmp_path / "venv"))
    assert done.returncode == 0, done.stderr
    assert "python3.12 -m venv" in machine.log.read_text()


def test_named_python_is_not_replaced(machine, tmp_path):
    python_stub(machine, "python3.9", new=False)
    python_stub(machine, "python3.12")
    done = machine.run("make-venv.sh", str(tmp_path / "venv"), PYTHON="python3.9")
    assert done.returncode == 1
    assert "'python3.9' is Python 3.9.2" in done.stderr


def test_missing_venv_module_is_told(machine, tmp_path):
    python_stub(machine, "python3", venv=False)
    done = machine.run("make-venv.sh", str(tmp_path / "venv"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].strip() == "sudo apt-get install -y python3.12-venv"


def test_help_lists_every_target():
    # Make's own variables would otherwise reach the inner make when this runs under `make test`.
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    shown = subprocess.run(
        ["make"], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert [line.split()[1] for line in shown.splitlines()] == phony


def locked(name: str) -> dict[str, str]:
    """Read a lock file: the version of each package."""
    lock = (ROOT / name).read_text()
    # Neither an index nor a file: a package comes from wherever the user's pip is set to look.
    assert not re.search(r"://|^\s*-(?!-hash=sha256:)|file:|@ ", lock, re.M)
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", lock, flags=re.M))
    assert all(re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:", e, re.S) for e in entries)
    return dict(entry.split(maxsplit=1)[0].split("==") for entry in entries)


def test_the_locks_have_every_dependency_with_hashes_and_no_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    build = groups["build"]
    extras = project["project"]["optional-dependencies"]
    assert set(extras) == {"all", "bench", "cli", "delta", "hdfs", "kafka", "metrics", "plot"}
    assert extras["all"] == ["sparkswarm[bench,cli,delta,hdfs,kafka,metrics,plot]"]
    wanted = [*project["project"]["dependencies"], *build]
    wanted += [entry for name, extra in extras.items() if name != "all" for entry in extra]
    wanted += [entry for entry in groups["dev"] if isinstance(entry, str)]

    def names(requirements):
        return {re.match(r"[\w-]+", name)[0] for name in requirements}

    everything, first = locked("requirements.lock"), locked("requirements-build.lock")
    assert names(wanted) <= everything.keys()
    assert names(build) <= first.keys()
    assert first.items() <= everything.items(), "what is built with is what is installed"
