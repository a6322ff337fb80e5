"""The tables in README and docs that are generated, from what the stores declare and from the docstrings.

A page says where one belongs, and what stands between is written by `./dev docs --write`:

    <!-- generated: stores -->
    <!-- end -->
"""

import ast
import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from soloist import Soloist, errors, events
from soloist.contract import Capabilities
from soloist.stores import TABLE, Family, open_store
from tools.lint import ROOT

PLACE = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
ARGUMENT = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.DOTALL | re.MULTILINE)
DAY = 86400


def pages() -> list[Path]:
    """Every page that may hold a table."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def stale() -> list[Path]:
    """The pages whose tables are not current."""
    return [page for page in pages() if page.read_text(encoding="utf-8") != filled(page)]


def write() -> None:
    """Bring every page up to date."""
    for page in stale():
        page.write_text(filled(page), encoding="utf-8")


def filled(page: Path) -> str:
    """A page with its tables as they must be."""

    def current(place: re.Match[str]) -> str:
        name, *arguments = place[2].split()
        return f"{place[1]}{TABLES[name](page, *arguments)}\n{place[3]}"

    return PLACE.sub(current, page.read_text(encoding="utf-8"))


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def declared(family: Family) -> Capabilities:
    """What a store says of itself; nothing is opened for it."""
    return open_store(family.example, "so", aio=False).capabilities


def schemes(family: Family) -> str:
    """The beginnings of a family's URLs."""
    return " ".join(f"`{scheme}://`" for scheme in family.schemes)


def stores(page: Path) -> str:
    """One line per store: what it guarantees."""

    def rows() -> Iterator[tuple[str, ...]]:
        for family in TABLE:
            gives = declared(family)
            link = f"[{schemes(family)}]({os.path.relpath(ROOT / 'docs' / 'stores', page.parent)}/{family.module}.md)"
            yield link, family.line, gives.fence, gives.push or f"polls, {gives.poll:g} s", gives.linearizable, gives.failover

    return table(("Store", "For", "Fences", "A waiter is woken by", "One holder at a time", "When it fails"), rows())


def capabilities(_: Path, module: str) -> str:
    """All that one store declares."""
    family = next(family for family in TABLE if family.module == module)
    gives = declared(family)

    def rows() -> Iterator[tuple[str, ...]]:
        for name in (field.name for field in fields(Capabilities)):
            if name != "poll" or not gives.push:
                yield f"`{name}`", shown(name, getattr(gives, name))

    return table(("", "`Capabilities`"), rows())


def shown(name: str, value: object) -> str:
    """A capability as one reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name == "max_record":
        return f"{value:,} bytes"
    if isinstance(value, int | float):
        return f"{value / DAY:,.0f} days" if value > DAY else f"{value:g} s"
    return str(value) or "none: it polls"


def meanings(_: Path) -> str:
    """What each field of Capabilities means."""
    return table(("Field", "Meaning"), ((f"`{name}`", text) for name, text in arguments_of(Capabilities, "Attributes").items()))


def options(_: Path, name: str) -> str:
    """The options of a method of Soloist, with their defaults."""
    method = getattr(Soloist, name)
    texts = arguments_of(Soloist if name == "__init__" else method, "Args")
    parameters = [one for one in inspect.signature(method).parameters.values() if one.name in texts and one.kind != one.VAR_KEYWORD]

    def default(value: object) -> str:
        return "" if value is inspect.Parameter.empty else f"`{value!r}`"

    return table(("Option", "Default", "Meaning"), ((f"`{one.name}`", default(one.default), texts[one.name]) for one in parameters))


def arguments_of(what: object, section: str) -> dict[str, str]:
    """The entries of a docstring's section."""
    lines = inspect.cleandoc(getattr(what, "__doc__", "") or "").partition(f"\n{section}:\n")[2]
    inside = re.split(r"^\S", lines, maxsplit=1, flags=re.MULTILINE)[0]
    return {name: " ".join(text.split()) for name, text in ARGUMENT.findall(inside)}


def happenings(_: Path) -> str:
    """The events."""
    found = classes(events.__file__)
    return table(("Event", "Fields", "What happened"), ((f"`{node.name}`", attributes(node), first(node)) for node in found))


def raised(_: Path) -> str:
    """The errors."""
    found = [node for node in classes(errors.__file__) if not node.name.startswith("_")]
    return table(("Error", "Is a", "When"), ((f"`{node.name}`", f"`{ast.unparse(node.bases[0])}`", first(node)) for node in found))


def classes(path: str) -> list[ast.ClassDef]:
    """The classes of a file, in its order."""
    return [node for node in ast.parse(Path(path).read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]


def first(node: ast.ClassDef) -> str:
    """A docstring's first paragraph."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def attributes(node: ast.ClassDef) -> str:
    """The fields of a named tuple."""
    return ", ".join(f"`{ast.unparse(member.target)}`" for member in node.body if isinstance(member, ast.AnnAssign))


TABLES: dict[str, Callable[..., str]] = {
    "stores": stores,
    "capabilities": capabilities,
    "meanings": meanings,
    "options": options,
    "events": happenings,
    "errors": raised,
}
