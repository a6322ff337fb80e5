"""What the house tests read: the files of this repository, and the imports in them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "soloist"
PYTHON = ("src", "tools", "tests", "examples", "benchmarks", "torture")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """One module of ours imports another; `typing` if only a type checker follows it."""

    importer: str
    imported: str
    typing: bool


def python_files(*folders: str) -> list[Path]:
    """Every Python file of ours, or those below some folders."""
    found = [path for folder in folders or PYTHON for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts]
    return found if folders else [*found, ROOT / "dev"]


def text_files() -> list[Path]:
    """Every file that somebody reads."""
    kinds = {".py", ".md", ".toml", ".txt", ".lua", ".yml", ".yaml", ".sh", ".sql", ".svg", ".html"}
    folders = (*PYTHON, "docs", ".ci", ".github")
    below = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in kinds or path.parent.name == ".ci"]
    return [path for path in (*ROOT.glob("*"), *below) if path.is_file() and (path.suffix in kinds or not path.suffix)]


def short(path: Path) -> str:
    """A path as one names it here."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules() -> dict[str, Path]:
    """Our modules by their names."""
    found: dict[str, Path] = {}
    for path in python_files("src"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Who of us imports whom."""
    return tuple(Import(name, target, typing) for name, path in modules().items() for target, typing in ours(name, tree(path)))


def ours(importer: str, module: ast.Module) -> Iterator[tuple[str, bool]]:
    """The modules of ours that a module imports, wherever in it."""
    for node, typing in statements(module):
        for name in named(node):
            target = name if name in modules() else name.rpartition(".")[0]  # a module, or a name in one
            if target in modules() and target != importer:
                yield target, typing


def statements(module: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import in a module, and whether it stands under TYPE_CHECKING."""
    for_types = {
        id(inner)
        for node in ast.walk(module)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, id(node) in for_types


def named(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The dotted names that an import statement reaches for."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def functions(module: ast.Module) -> list[Function]:
    """Every function in a module, methods and inner ones too."""
    return [node for node in ast.walk(module) if isinstance(node, Function)]


def classes(path: Path) -> dict[str, ast.ClassDef]:
    """The classes at the top of a file."""
    return {node.name: node for node in tree(path).body if isinstance(node, ast.ClassDef)}
