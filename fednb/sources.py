"""A method is known by its source: a digest that changes with what it does, and with nothing else.

It is made of the definition of the method's class and of all top-level definitions that it mentions,
itself or by others, in the same notebook or file and in those from which these import. Comments,
docstrings and layout do not count, nor do hyperparameters, which a record has among its settings.
What comes from `fednb` or from a library is left to the record's commit and versions. A network of
one's own, and what is put into a list or dict after its definition, are not seen.
"""

import ast
import contextlib
import hashlib
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from symtable import SymbolTable, symtable
from typing import NamedTuple

NOTEBOOKS = "fednb.papers."  # modules of the package that are notebooks
LIBRARIES = ("fednb", "fednb_lab", *sys.stdlib_module_names)
KERNEL = "kernel"  # in place of a file


class Definition(NamedTuple):
    """A top-level statement that gives a name its meaning, and the file in which it stands."""

    statement: ast.stmt
    file: str


Definitions = dict[str, Definition]  # by name; the last one counts


def digest(method: type) -> str | None:
    """Return twelve hex digits of a method's source; None if it cannot be read, as behind a prompt.

    Nor can it be where a cell was changed in a kernel, and those that build on it not executed.
    """
    kernel = sys.modules["__main__"]
    of_kernel = [cls for cls in method.__mro__ if cls.__module__ == "__main__"]
    if not all(getattr(kernel, cls.__qualname__, cls) is cls for cls in of_kernel):
        return None
    source = _Source(method)
    file = _file_of(method.__module__) or _file_of(method.__module__, Path.cwd())
    if file is not None:
        source.add(method.__qualname__.partition(".")[0], file)  # in a function: the function
        if not source.texts:
            return None
    text = "\n".join(source.texts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_other_code(recorded: str | None, method: type) -> bool:
    """Tell whether a method's source is another one than recorded; False without a digest."""
    if recorded is None:
        return False
    now = digest(method)
    return now is not None and recorded != now


def _file_of(module: str, folder: Path | None = None) -> str | None:
    """The file of a module that is loaded, or is imported in a folder; None of a library's.

    One in the folder comes first: modules beside a notebook are forgotten when it has been
    imported, and another notebook may have a namesake.
    """
    loaded = sys.modules.get(module)
    if module == "__main__" and hasattr(loaded, "In"):  # IPython's list of executed cells
        return KERNEL
    file = getattr(loaded, "__file__", None) or ""
    if module.startswith(NOTEBOOKS):
        return file or None
    if module.partition(".")[0] in LIBRARIES:
        return None
    if folder is not None:
        beside = folder / f"{module.replace('.', '/')}.py"
        if beside.is_file():
            return str(beside)
    is_installed = "site-packages" in file or "dist-packages" in file
    return file if file.endswith(".py") and not is_installed else None


class _Source:
    """The texts of the definitions that belong to a method, as they are found."""

    def __init__(self, method: type) -> None:
        self.texts: list[str] = []
        self._seen: set[tuple[str, str]] = set()  # names with their files
        self._definitions: dict[str, Definitions] = {}  # by file
        self._dataclasses = [  # whose fields are hyperparameters
            cls.__name__ for cls in method.__mro__ if "__dataclass_fields__" in vars(cls)
        ]

    def add(self, name: str, file: str) -> None:
        """Add the definition of a name, if there is one in a file, and all that it mentions."""
        found = self._read(file).get(name)
        if found is None or (name, found.file) in self._seen:
            return
        self._seen.add((name, found.file))
        statement = found.statement
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._add_imported(statement, name, _folder_of(statement, found.file))
            return
        text = ast.unparse(statement)
        self.texts.append(text)
        for other in sorted(mentioned(symtable(text, found.file, "exec"))):
            self.add(other, found.file)

    def _add_imported(
        self, statement: ast.Import | ast.ImportFrom, name: str, folder: Path
    ) -> None:
        """Add the definition that a statement imports under a name, or all of a module."""
        parent = getattr(statement, "module", None)
        for alias in statement.names:
            if (alias.asname or alias.name.partition(".")[0]) != name:
                continue
            module = _file_of(f"{parent}.{alias.name}" if parent else alias.name, folder)
            file = _file_of(parent, folder) if parent else None
            if module:
                for one in self._read(module):
                    self.add(one, module)
            elif file:
                self.add(alias.name, file)

    def _read(self, file: str) -> Definitions:
        """The definitions of a file, and of those of which it imports everything."""
        if file not in self._definitions:
            found: Definitions = {}
            self._definitions[file] = found
            for statement in _statements(file):
                if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                    other = _file_of(statement.module or "", _folder_of(statement, file))
                    if other:
                        found |= self._read(other)
                    continue
                self._strip(statement)
                table = symtable(ast.unparse(statement), file, "exec")
                for symbol in table.get_symbols():
                    if symbol.is_assigned() or symbol.is_imported():
                        found[symbol.get_name()] = Definition(statement, file)
        return self._definitions[file]

    def _strip(self, statement: ast.stmt) -> None:
        """Take docstrings and hyperparameters out."""
        for node in ast.walk(statement):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                has_fields = isinstance(node, ast.ClassDef) and node.name in self._dataclasses
                kept = [one for one in node.body if not _is_left_out(one, has_fields)]
                node.body = kept or [ast.Pass()]


def _folder_of(statement: ast.Import | ast.ImportFrom, file: str) -> Path:
    """The folder in which a file imports; of ``from ..module import`` the one above."""
    level = getattr(statement, "level", 0)
    return Path(file).absolute().parents[max(level, 1) - 1]


def _statements(file: str) -> Iterator[ast.stmt]:
    """The statements of a file, or of a kernel's cells."""
    cells = ["".join(linecache.getlines(file))]
    if file == KERNEL:
        cells = sys.modules["__main__"].In  # type: ignore[attr-defined]
    for cell in cells:
        with contextlib.suppress(SyntaxError):  # then it was not executed
            yield from ast.parse(cell).body


def _is_left_out(statement: ast.stmt, has_fields: bool) -> bool:
    if isinstance(statement, ast.AnnAssign):
        return has_fields and "ClassVar" not in ast.unparse(statement.annotation)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def mentioned(table: SymbolTable) -> Iterator[str]:
    """Yield the names of its module that a statement reads, or a function in it."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from mentioned(inner)
