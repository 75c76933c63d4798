"""The function's package: the engine, the adapters, the handlers, the author's modules and what they depend on.

One package serves all four functions. For AWS it is a folder, for the local stack a zip; both hold bytecode, since
Lambda's file system cannot keep what Python compiles there and every cold start would compile everything again.
"""

from __future__ import annotations

import contextlib
import hashlib
import keyword
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.environment import MINISTACK, find_uv
from infra.fault import DeployError
from infra.imports import NameTakenError, beside, followed
from infra.place import BUILD, IS_CHECKOUT, LOCKS, ROOT, function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOMS = ("engine", "adapters", "handlers")
"""What of torpor runs inside a function."""

TAKEN = frozenset({*ROOMS, "infra"})
"""Names that an author's modules cannot have: beside torpor's own, only one of the two can be imported."""

OWN = ("app.py", "app/__init__.py")
"""Where workflows are looked for unless ``--app`` says otherwise."""

EXAMPLE = "examples.orders"
"""What a checkout runs where there is nothing of the author's."""

AWS_PYTHON_VERSION = "3.13"
"""The Runtime of template.yaml."""

AWS_PLATFORM = "x86_64-manylinux_2_28"
"""Wheels that Amazon Linux 2023, the system of that runtime, can load. Source: its glibc, 2.34."""

AWS_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""The same for pip, to which the name of a platform does not mean those before it."""

PACKAGE_BYTES_MAX = 250 * 1024 * 1024
"""Unpacked bytes of a function's package. Source: Lambda quota."""

_INCLUDED = re.compile(r"\s*(?:-r|--requirement)[\s=]*(?!\S+://)([^\s#]+)")
"""The line of a requirements file that includes another one of the same machine."""

PACKAGES_KEPT = 5
"""Zips kept, the newest: each change of a source makes one of some 45 MB. Design choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The author's part of a package.

    Attributes:
        modules: what ``TORPOR_APP`` names: dotted module names, separated by commas.
        folder: where those modules, and what they import, are found; its requirements.txt, if any, is installed too.
    """

    modules: str
    folder: Path

    @classmethod
    def of(cls, modules: str | None, folder: Path) -> Application:
        """What ``--app`` names; where it names nothing, ``app`` if the folder has it, else a checkout's example.

        Raises:
            DeployError: there is nothing to run, or what is named is no module.
        """
        if modules is None and not any((folder / name).exists() for name in OWN):
            if not IS_CHECKOUT:
                raise DeployError(f"There is no app.py in {folder}: give --app the module that registers workflows.")
            modules = EXAMPLE
        names = [name.strip() for name in (modules or "app").split(",")]
        for name in names:
            if not all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split(".")):
                raise DeployError(
                    f"{name!r} is no name of a module: --app takes names as Python imports them, such as app or "
                    f"shop.orders, separated by commas, and is started in the folder that holds them."
                )
        # Without the spaces that one may write: the template's parameter takes none.
        return cls(modules=",".join(names), folder=folder)

    def sources(self) -> list[Path]:
        """The files and folders of the top-level modules, and of those beside them that they import.

        Raises:
            DeployError: one of ``modules`` is nowhere, or one of these has the name of a package of torpor's.
        """
        names = [name.strip() for name in self.modules.split(",")]
        tops = {name.split(".")[0] for name in names}
        named = sorted({self._find(name) for name in names if name.split(".")[0] not in ROOMS})
        if self.folder == ROOT:
            # In our own folder everything is beside everything, and what is needed is named.
            return named
        for top in sorted(tops & TAKEN):
            for place in (self.folder / top, self.folder / f"{top}.py"):
                if place.exists():
                    raise NameTakenError(place)
        return followed(self.folder, named, TAKEN)

    def _find(self, name: str) -> Path:
        top = name.partition(".")[0]
        for folder in (self.folder, ROOT):
            # A folder that was named is meant, whatever it holds: Python will tell what it lacks.
            found = beside(folder, name) or folder / top
            if found.exists():
                return found
        raise DeployError(f"There is no module {top} in {self.folder}: give --app the module that registers workflows.")

    def requirements(self) -> str:
        """The text of a requirements file: our lock, and below it what the author's own requirements.txt asks for."""
        lock = (LOCKS / "runtime.txt").read_text()
        own = self.folder / "requirements.txt"
        if self.folder == ROOT or not own.exists():
            return lock
        asked = _requirements_in(own)
        if "--hash" in asked:
            return f"{lock}{asked}"
        # pip refuses a file in which only some lines have hashes.
        pins = [line.removesuffix(" \\") for line in lock.splitlines() if not line.lstrip().startswith("--hash")]
        return "\n".join([*pins, asked])


def _requirements_in(file: Path, includers: tuple[Path, ...] = ()) -> str:
    """What a requirements file asks for, with the files that it includes in the places of their lines.

    It is installed from a folder of its own, where the names of those would lead nowhere.
    """
    if file in includers:
        raise DeployError(f"{file} includes itself.")
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        if included := _INCLUDED.match(line):
            lines[number] = _requirements_in((file.parent / included[1]).resolve(), (*includers, file))
    return "".join(f"{line}\n" for line in lines)


def build_zip(
    application: Application,
    *,
    interpreter: Path = MINISTACK.python,
    report: Callable[[str], None] = lambda _line: None,
) -> Path:
    """Build the package for the local stack, whose functions run under ``interpreter``; gives the zip's path.

    The name holds a hash of the content, so the same sources give the same path. ``report`` is told of what takes long.
    """
    dependencies = _dependencies(application.requirements(), _local_installer(interpreter), interpreter, report)
    packages = BUILD / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    # Two processes may build at once: each works in a folder of its own, and the result appears whole.
    with tempfile.TemporaryDirectory(dir=packages) as work:
        code = Path(work) / "code"
        _copy_code(application, code)
        target = packages / f"{_fingerprint(code, dependencies.name)}.zip"
        if not target.exists():
            _compile(interpreter, code)
            partial = Path(work) / target.name
            _write_zip(partial, dependencies, code)
            partial.replace(target)
    _forget_old(packages)
    return target


@contextlib.contextmanager
def laid_out(application: Application, interpreter: Path, report: Callable[[str], None]) -> Iterator[tuple[Path, Path]]:
    """What the zip would hold, as two folders while this is open: the code, and the dependencies."""
    dependencies = _dependencies(application.requirements(), _local_installer(interpreter), interpreter, report)
    with tempfile.TemporaryDirectory() as work:
        code = Path(work).resolve() / "code"
        _copy_code(application, code)
        yield code, dependencies


def _forget_old(packages: Path) -> None:
    newest_first = sorted(packages.glob("*.zip"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest_first[PACKAGES_KEPT:]:
        path.unlink(missing_ok=True)


def _write_zip(target: Path, *folders: Path) -> None:
    # Stored, not deflated: it never leaves the machine, and every cold start unpacks it.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for folder in folders:
            for path in _files(folder):
                archive.write(path, path.relative_to(folder))


def build_folder(application: Application, target: Path, report: Callable[[str], None] = lambda _line: None) -> Path:
    """Build the package for AWS into ``target``, emptied first; gives that folder.

    Bytecode is in it where a Python of the function's version is on the PATH.
    Raises DeployError where a wheel for Lambda's platform is missing or the package is too large.
    """
    dependencies = _dependencies(application.requirements(), _aws_installer(), None, report)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(dependencies, target)
    # Over them: of two modules of one name it is the author's that is imported, as everywhere else.
    _copy_code(application, target)
    interpreter = shutil.which(f"python{AWS_PYTHON_VERSION}")
    if interpreter:
        _compile(Path(interpreter), target)
    size = sum(path.stat().st_size for path in _files(target))
    if size > PACKAGE_BYTES_MAX:
        raise DeployError(f"The package has {size} bytes unpacked; Lambda takes {PACKAGE_BYTES_MAX}.")
    return target


def _local_installer(interpreter: Path) -> list[str]:
    if not interpreter.exists():
        raise DeployError(f"The local AWS is not installed ({interpreter} is missing): run `make setup`.")
    uv = find_uv()
    if uv:
        return [str(uv), "pip", "install", "--quiet", "--python", str(interpreter)]
    return [str(interpreter), "-m", "pip", "install", "--quiet"]


def _aws_installer() -> list[str]:
    uv = find_uv()
    wheels_only = ["--only-binary", ":all:"]
    if uv:
        version = ["--python-version", AWS_PYTHON_VERSION, "--python-platform", AWS_PLATFORM]
        return [str(uv), "pip", "install", "--quiet", *version, *wheels_only]
    return [sys.executable, "-m", "pip", "install", "--quiet", *pip_target(), *wheels_only]


def pip_target() -> list[str]:
    """The options by which pip takes what the functions' Python on AWS can load."""
    platforms = [option for name in AWS_PLATFORMS for option in ("--platform", name)]
    return ["--python-version", AWS_PYTHON_VERSION, *platforms]


def _dependencies(
    requirements: str, installer: list[str], interpreter: Path | None, report: Callable[[str], None]
) -> Path:
    """A folder with what ``requirements`` asks for, installed once per text, installer and Python."""
    python = [] if interpreter is None else [_version_of(interpreter)]
    key = hashlib.sha256("\0".join([requirements, *python, *installer[1:]]).encode()).hexdigest()[:16]
    target = BUILD / "dependencies" / key
    if target.exists():
        return target
    report("installing what the functions depend on, once for these versions")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        wanted, installed = Path(work) / "requirements.txt", Path(work) / "installed"
        wanted.write_text(requirements)
        _run([*installer, "--target", str(installed), "-r", str(wanted)], "The dependencies cannot be installed")
        shutil.rmtree(installed / "bin", ignore_errors=True)
        if interpreter is not None:
            _compile(interpreter, installed)
        with contextlib.suppress(OSError):  # somebody else was faster, with the same content
            installed.replace(target)
    return target


def _version_of(interpreter: Path) -> str:
    # Another one may be at the same place tomorrow, and cannot load what was built for this one.
    told = subprocess.run(
        [interpreter, "-I", "-S", "-c", "import sys; print(sys.implementation.cache_tag)"],
        check=False,
        capture_output=True,
        text=True,
    )
    return told.stdout.strip()


def _copy_code(application: Application, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for source in [*(ROOT / room for room in ROOMS), *application.sources()]:
        try:
            if source.is_dir():
                shutil.copytree(source, target / source.name, ignore=unwanted, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target / source.name)
        except OSError as error:
            # An editor is replacing it, or there is a link to nowhere.
            raise DeployError(f"{source} cannot be packed: {_told(error)}") from error


def _told(error: OSError) -> str:
    """What could not be copied, and why: of a folder a list of it, of which the first will do."""
    many = error.args[0] if isinstance(error, shutil.Error) else None
    return str(many[0][2] if many and not isinstance(many, str) else error)


def _compile(interpreter: Path, folder: Path) -> None:
    # Unpacking gives files new times, so bytecode that is checked against them would never be used.
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-j", "0", str(folder)]
    # A file that does not compile is the author's to see when it is imported, with its name and line.
    subprocess.run([interpreter, "-m", "compileall", *options], check=False, capture_output=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _fingerprint(code: Path, dependencies: str) -> str:
    digest = hashlib.sha256(dependencies.encode())
    for path in _files(code):
        digest.update(str(path.relative_to(code)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str], complaint: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DeployError(f"{complaint}: {done.stderr.strip() or done.stdout.strip()}")


def main() -> None:
    """Build the package for AWS: ``python -m infra.package [MODULES]``."""
    folder = Path.cwd()
    print(build_folder(Application.of(sys.argv[1] if len(sys.argv) > 1 else None, folder), function(folder)))


if __name__ == "__main__":
    main()
