"""What `pip install soloist` brings: built, put into an empty environment, and used as the README's first example says."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it must end well."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SOLOIST"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel in it and nothing else: nothing else may be needed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    run(interpreter, "-m", "pip", "install", "--quiet", "--no-index", next(built.glob("*.whl")), cwd=folder)
    return interpreter


def test_the_wheel_holds_every_file_of_the_package(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("soloist/")}
    source = (path for path in (ROOT / "src" / "soloist").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {path.relative_to(ROOT / "src").as_posix() for path in source}


def test_the_source_archive_holds_the_tests_and_no_litter(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        packed = {name.partition("/")[2].partition("/")[0] for name in archive.getnames()}
    assert {"src", "tests", "docs", "README.md", "LICENSE", "pyproject.toml"} <= packed
    assert not packed & {".venv", ".servers", ".git"}


def test_it_imports_without_any_other_package(python: Path, tmp_path: Path) -> None:
    installed = run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).split()
    assert {line.partition("==")[0] for line in installed} <= {"soloist", "pip", "setuptools"}
    assert "site-packages" in run(python, "-c", "import soloist; print(soloist.__file__)", cwd=tmp_path)


def test_the_first_example_of_the_readme_runs_as_printed(python: Path, tmp_path: Path) -> None:
    example = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert example, "the README has no Python in it"
    (tmp_path / "example.py").write_text(example[1], encoding="utf-8")
    run(python, "example.py", cwd=tmp_path)
