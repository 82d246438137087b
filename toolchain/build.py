"""Builds a recipe with Go from its pinned modules, in a private copy of its folder."""

import shutil
import time
from collections import Counter
from pathlib import Path

from toolchain import cache
from toolchain.go import GoEnvironment, check_go, module_folder, run_go
from toolchain.progress import MEBIBYTE, duration, packages, progress, say
from toolchain.recipe import ModuleFile, Recipe, module_files

_FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath")
# What debuggers read is an eighth of the compiler's work, and the linker leaves it out (-s -w).
_COMPILER = "-dwarf=false"


def built(recipe: Recipe) -> Path:
    """The cache entry with the recipe's executables; builds it if it is missing.

    Raises:
        ToolchainError: Go is missing or too old, the disk is full, a module can't be fetched, or the build failed.
    """
    return cache.obtain(recipe.entry, recipe.files, what=title(recipe), fill=lambda into: _build(recipe, into))


def title(recipe: Recipe) -> str:
    """Names what a recipe makes, for a person."""
    return f"{', '.join(recipe.executables)} {recipe.version}"


def _build(recipe: Recipe, into: Path) -> None:
    what = title(recipe)
    go = check_go(recipe.source, what)
    workplace = into / "source"
    source = _copy(recipe.source, workplace / "program")
    for file in recipe.embedded:
        _take(file, workplace, source, what)
    begin = time.monotonic()
    listed, stale = _packages(recipe, source, what)
    _check_space(recipe, go, into, len(stale) / len(listed))
    _compile(recipe, source, into, stale, what)
    for file in recipe.beside:
        _take(file, workplace, into, what).chmod(0o755)
    shutil.rmtree(workplace)
    say(f"built {what} in {duration(time.monotonic() - begin)}")


def _copy(folder: Path, target: Path) -> Path:
    # A private copy: the checkout may be read-only, and concurrent builds must not meet in it.
    target.mkdir(parents=True)
    for name in module_files(folder):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, target / name)
    return target


def _take(file: ModuleFile, workplace: Path, into: Path, what: str) -> Path:
    pins = workplace / f"pins of {file.folder.replace('/', '_')}"
    if not pins.exists():
        _copy(file.source, pins)
    return Path(shutil.copyfile(module_folder(file.module, pins, what) / file.path, into / Path(file.path).name))


def _packages(recipe: Recipe, source: Path, what: str) -> tuple[frozenset[str], frozenset[str]]:
    """All packages of a recipe, and those that Go's cache lacks."""
    stale_by_path: dict[str, bool] = {}

    def take(line: str) -> bool:
        match line.split():
            case ["package", path, "true" | "false" as stale]:
                stale_by_path[path] = stale == "true"
                return True
            case ["go:", "downloading", *_]:
                advance(1)
                return True
            case _:
                return False

    mains = [package for _, package in recipe.packages]
    listing = ["list", *_flags(recipe), "-deps", "-f", "package {{.ImportPath}} {{.Stale}}", *mains]
    with progress(f"looking at the packages of {what}", 0, _modules) as advance:
        run_go(listing, source, what, take, cgo=recipe.cgo)
    return frozenset(stale_by_path), frozenset(path for path, stale in stale_by_path.items() if stale)


def _modules(fetched: int, _total: int) -> str:
    return f"{fetched} modules fetched" if fetched else "nothing fetched"


def _check_space(recipe: Recipe, go: GoEnvironment, into: Path, stale_share: float) -> None:
    """Refuse before minutes of work what can't end well; a warm Go cache needs little."""
    go_cache = _existing(go.build_cache)
    needs: Counter[int] = Counter()
    needs[go_cache.stat().st_dev] += int(recipe.go_cache_mib * stale_share)
    needs[into.stat().st_dev] += recipe.result_mib
    for folder in (go_cache, into):
        free = shutil.disk_usage(folder).free // MEBIBYTE
        if free < (need := needs[folder.stat().st_dev]):
            raise cache.disk_full(folder, title(recipe), f"{free} MiB are free, about {need} MiB are needed")


def _existing(folder: Path) -> Path:
    return next(candidate for candidate in (folder, *folder.parents) if candidate.exists())


def _compile(recipe: Recipe, source: Path, into: Path, stale: frozenset[str], what: str) -> None:
    variables = " ".join(f"-X {name}={value}" for name, value in recipe.variables)
    mains = [package for _, package in recipe.packages]
    # With several main packages Go names each result after its package's last path element.
    output = f"{into}/" if len(mains) > 1 else str(into / recipe.executables[0])
    arguments = [
        "build",
        "-v",
        *_flags(recipe),
        "-ldflags",
        f"-s -w {variables}".rstrip(),
        "-o",
        output,
        *mains,
    ]
    with progress(f"building {', '.join(recipe.executables)}", len(stale), packages) as advance:

        def take(line: str) -> bool:
            is_package = line in stale
            if is_package:
                advance(1)
            return is_package

        run_go(arguments, source, what, take, cgo=recipe.cgo)


def _flags(recipe: Recipe) -> tuple[str, ...]:
    tags = ("-tags", ",".join(recipe.tags)) if recipe.tags else ()
    plain = (f"-gcflags={pattern}={_COMPILER} -l" for pattern in recipe.plain)
    return (*_FLAGS, *tags, f"-gcflags=all={_COMPILER}", *plain)
