"""The public API as a text file, so that a change of it is a line in a diff: `python -m tools.public_api [--write]`.

Read from the source, without importing it: what a name says, not what a client library makes of it.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.lint import ROOT

SOURCE = ROOT / "src"
FILE = ROOT / "tests" / "house" / "public_api.txt"
MODULES = ("soloist", "soloist.contract", "soloist.errors", "soloist.events")
PACKAGES = ("soloist.testing",)  # every module of theirs without an underscore

Function = ast.FunctionDef | ast.AsyncFunctionDef


def text() -> str:
    """The whole list."""
    return "\n\n".join("\n".join(module_lines(name)) for name in modules()) + "\n"


def write() -> None:
    """Bring the file up to date."""
    FILE.write_text(text(), encoding="utf-8")


def modules() -> list[str]:
    """The public modules that exist."""
    names = [name for name in MODULES if path_of(name) is not None]
    for package in PACKAGES:
        folder = SOURCE / package.replace(".", "/")
        names += [package] if (folder / "__init__.py").exists() else []
        names += sorted(f"{package}.{path.stem}" for path in folder.glob("[a-z]*.py"))
    return names


def path_of(module: str) -> Path | None:
    """The file of a module."""
    base = SOURCE / module.replace(".", "/")
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.exists()), None)


def module_lines(module: str) -> Iterator[str]:
    """A module's public names."""
    yield f"# {module}"
    body = parsed(module).body
    exported = declared(body)
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("soloist") and exported is not None:
            for alias in node.names:
                if (alias.asname or alias.name) in exported:
                    yield from imported(node.module, alias.name)
        else:
            yield from (line for name, lines in named(node, module) if is_public(name, exported) for line in lines)


def parsed(module: str) -> ast.Module:
    """A module's source."""
    path = path_of(module)
    assert path is not None, module
    return ast.parse(path.read_text(encoding="utf-8"))


def declared(body: Sequence[ast.stmt]) -> list[str] | None:
    """What `__all__` lists, if there is one; of a computed one, what stands in it or in a constant that it takes in."""
    constants = {ast.unparse(target): node.value for node in body if isinstance(node, ast.Assign) for target in node.targets}
    return list(strings(constants["__all__"], constants)) if "__all__" in constants else None


def strings(listed: ast.expr, constants: Mapping[str, ast.expr]) -> Iterator[str]:
    """The strings of a list or a tuple."""
    match listed:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                yield from strings(element, constants)
        case ast.Starred(value=ast.Name(id=name)):
            yield from strings(constants[name], constants)
        case ast.Constant(value=str(word)):
            yield word
        case _:
            pass


def is_public(name: str, exported: list[str] | None) -> bool:
    """Whether a name is for others: by `__all__`, else by its first letter. A shipped test is pytest's to find."""
    if name.startswith("test_"):
        return False
    return not name.startswith("_") if exported is None else name in exported


def imported(module: str, name: str) -> list[str]:
    """A name that is defined elsewhere."""
    if path_of(f"{module}.{name}") is not None:
        return [f"module {name}"]
    body = parsed(module).body if path_of(module) else []
    return next((lines for node in body for found, lines in named(node, module) if found == name), [name])


def named(node: ast.stmt, module: str) -> Iterator[tuple[str, list[str]]]:
    """What a statement at the top of a module defines, each with its lines."""
    match node:
        case ast.ClassDef():
            bases = ", ".join(ast.unparse(base) for base in [*node.bases, *(keyword.value for keyword in node.keywords)])
            head = f"class {node.name}({bases})" if bases else f"class {node.name}"
            yield node.name, [head, *(f"    {line}" for line in members(node, module))]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name, [function_line(node)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name, [ast.unparse(node)]
        case ast.Assign(targets=[ast.Name(id=name)]) if name != "__all__":
            yield name, [f"{name} = ..."]
        case _:
            pass


def members(node: ast.ClassDef, module: str) -> Iterator[str]:
    """What a class offers, with what its private bases in the same file offer: nobody could look for that there."""
    bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
    for base in parsed(module).body:
        if isinstance(base, ast.ClassDef) and base.name in bases and base.name.startswith("_"):
            yield from members(base, module)
    for member in node.body:
        if isinstance(member, Function) and (member.name == "__init__" or not member.name.startswith("_")):
            yield function_line(member)
        elif isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            yield ast.unparse(member)


def function_line(node: Function) -> str:
    """A function in one line, with what changes how it is called."""
    kinds = [f"@{ast.unparse(decorator)} " for decorator in node.decorator_list]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{''.join(kinds)}{start} {node.name}({ast.unparse(node.args)}){returns}"


def main(arguments: Sequence[str]) -> int:
    """Print the list, or write it to its file."""
    if list(arguments) == ["--write"]:
        write()
    else:
        print(text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
