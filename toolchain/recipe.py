"""How Go builds programs: the modules that a folder pins, and what becomes of them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolchain.cache import entry_name
from toolchain.official import Platform, this_platform

_HERE = Path(__file__).parent
# Neither a better estimate, another place of the same pins nor a faster build of the same must build anything anew.
_NOT_OF_THE_RESULT = frozenset({"minutes", "go_cache_mib", "result_mib", "room", "plain"})
# Came after the first builds: a recipe that does not use them keeps its entry.
_LATER = frozenset({"tags", "cgo"})


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A file taken out of a Go module's folder, at the version which the `go.mod` in `room`/`folder` selects."""

    folder: str
    module: str
    path: str
    room: Path = _HERE

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return self.room / self.folder


@dataclass(frozen=True, slots=True)
class Recipe:
    """How `go build` makes one or more executables from the modules pinned in one folder of `room`.

    `packages` says the name of each executable and the package that it is made of.
    With `cgo` the build needs a C compiler. `tags` are Go build tags. The functions of `plain` packages (patterns) are
    compiled as they stand, without what they call inside of them: faster to build, and slower to run.
    `embedded` files are laid beside the source before the build, `beside` ones, executable, beside the result.
    `minutes` is measured on two cores, modules fetched, with an empty Go cache, which grows by `go_cache_mib`.
    `result_mib` is the size of the executables.
    """

    name: str
    version: str
    folder: str
    packages: tuple[tuple[str, str], ...]
    minutes: int
    go_cache_mib: int
    result_mib: int
    variables: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    cgo: bool = False
    plain: tuple[str, ...] = ()
    embedded: tuple[ModuleFile, ...] = ()
    beside: tuple[ModuleFile, ...] = ()
    room: Path = _HERE

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return self.room / self.folder

    @property
    def executables(self) -> tuple[str, ...]:
        """The names of what is built."""
        return tuple(name for name, _ in self.packages)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of everything executable in the result."""
        return (*self.executables, *(Path(file.path).name for file in self.beside))

    @property
    def entry(self) -> str:
        """The cache entry's name: it changes with the recipe, with every pinned module and with the machine."""
        files = (*self.embedded, *self.beside)
        sources = {self.folder: self.source} | {file.folder: file.source for file in files}
        pins = [
            (folder, str(name), (source / name).read_text(encoding="utf-8"))
            for folder, source in sorted(sources.items())
            for name in module_files(source)
        ]
        recipe = {name: value for name, value in _of_the_result(self).items() if value or name not in _LATER}
        # Machines may share a home. The first builds were all for one platform, and keep their entries.
        machine = [] if this_platform() == Platform("linux", "amd64") else [str(this_platform())]
        return entry_name(self.name, self.version, recipe, pins, *machine)


def module_files(folder: Path) -> tuple[Path, ...]:
    """What a folder says to Go, relative to it: the pins, its sources, and modules of its own that replace others."""
    pins = [folder / name for name in ("go.mod", "go.sum") if (folder / name).exists()]
    modules = sorted(folder.glob("*/**/go.mod"))
    return tuple(file.relative_to(folder) for file in (*pins, *sorted(folder.rglob("*.go")), *modules))


def _of_the_result(recipe: Recipe) -> Mapping[str, Any]:
    """What decides what a recipe makes."""
    return asdict(
        recipe,
        dict_factory=lambda items: {name: value for name, value in items if name not in _NOT_OF_THE_RESULT},
    )
