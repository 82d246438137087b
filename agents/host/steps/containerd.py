"""The step `containerd`: the `nvidia` runtime beside runc, by each distribution's own mechanism."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import TYPE_CHECKING

from agents.host.change.plan import Step, change, change_of, private_change
from agents.host.errors import HostError
from agents.host.look import effective, imports, toolkit
from agents.host.look.distribution import Mechanism
from agents.host.look.effective import CRI_V2, CRI_V3, Effective, Files
from agents.host.look.runtime import NVIDIA, NVIDIA_FILE
from agents.host.look.toml_dump import below, flatten
from agents.host.steps import ctk, service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents.host.change.journal import Journal, Original
    from agents.host.change.plan import Change
    from agents.host.context import Context
    from agents.host.look.distribution import Layout
    from agents.host.look.toml_dump import Flat
    from agents.host.root import Root

NAME = "containerd"
RUNC_FILE = "00-kai-anywhere-runc.toml"
"""Sorted before the other, and there even when somebody replaces the other."""
_SPLIT_VERSION = 3
_UNSPLIT_VERSION = 2
_MERGES_SINCE = 2
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_BEGIN = "# Added by kai-anywhere's host agent: begin"
_END = "# Added by kai-anywhere's host agent: end"
_MARKED = re.compile(f"\n?{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)
_WRITTEN = "# Written by kai-anywhere's host agent"
_PROGRAM = re.compile(r"""BinaryName\s*=\s*["']([^"']*)/nvidia-container-runtime["']""")
_NVIDIA_IS_DEFAULT = re.compile(r"""^\s*default_runtime_name\s*=\s*["']nvidia["']""", re.MULTILINE)
_SPOILT = "\ufffd"
"""What a byte that is no UTF-8 became in what a program printed."""
_TEMPLATES = ("config-v3.toml.tmpl", "config.toml.tmpl")
"""Of k3s and rke2, beside the configuration: somebody's own in the place of theirs."""
_TAKES_RUNTIMES = re.compile(r"""template\s+["`]base["`]|ExtraRuntimes|nvidia""")
"""What a template has that extends theirs, repeats theirs as a whole, or names the runtime itself."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ONLY_VERSION = re.compile(r"version = \d+\n")


def plan(context: Context) -> Step:
    """Plan containerd's configuration; every candidate is tried with the distribution's own containerd first.

    Raises:
        HostError: The configuration can't take the runtime without losing something.
    """
    if context.layout.mechanism is Mechanism.OWN:
        return _own(context)
    if context.layout.mechanism is Mechanism.TEMPLATE:
        return _template(context)
    return _drop_in(context)


def _own(context: Context) -> Step:
    name, config = context.layout.name, context.layout.effective
    if context.desired.toolkit.owner == "operator":
        return Step(NAME, f"{name} finds the GPU Operator's toolkit itself")
    present = finds_nvidia(context)
    if present and not context.owes_restart(context.layout.unit):
        return Step(NAME, f"{name} has found the nvidia runtime: {config} holds it")
    if not present:
        _refuse_deaf_template(context)
    return Step(NAME, f"{name} looks for the nvidia runtime when it starts", service=service.for_layout(context.layout))


def _refuse_deaf_template(context: Context) -> None:
    """Refuse a restart that brings nothing, since somebody's template leaves out the runtimes that are found."""
    folder = context.layout.effective.rpartition("/")[0]
    texts = {f"{folder}/{name}": context.tools.root.read_text(f"{folder}/{name}") for name in _TEMPLATES}
    deaf = [path for path, text in texts.items() if text is not None and not _TAKES_RUNTIMES.search(text)]
    # Which of two is read depends on the version.
    if deaf and len(deaf) == sum(text is not None for text in texts.values()):
        raise HostError(
            f"{context.layout.name} makes {context.layout.effective} from {' or '.join(deaf)}, which leaves out the "
            "runtimes that it finds.",
            'Begin it with the line `{{ template "base" . }}` and keep only what you add, or remove it; nothing was '
            "changed.",
        )


def finds_nvidia(context: Context) -> bool:
    """Whether the configuration that k3s and rke2 write at each start holds the runtime."""
    content = context.tools.root.read_bytes(context.layout.effective)
    return bool(NVIDIA.search((content or b"").decode("utf-8", "replace")))


def is_whole(path: str) -> bool:
    """Whether a file is this agent's as a whole, and no part of somebody else's."""
    return path.rpartition("/")[2] in (NVIDIA_FILE, RUNC_FILE)


def looks_written(path: str, content: bytes) -> bool:
    """Whether such a file is this agent's by what it says; the GPU Operator's names the operator's program."""
    text = content.decode("utf-8", "replace")
    folders = _PROGRAM.findall(text)
    runtimes = bool(folders) and all(folder in toolkit.RUNTIME_FOLDERS for folder in folders)
    return text.startswith(_WRITTEN) or (path.endswith(NVIDIA_FILE) and runtimes)


def without_ours(path: str, original: bytes | None, current: bytes) -> bytes | None:
    """A main configuration without the import that this agent added, a template without its runtime."""
    text, former = imports.text_of(current), imports.text_of(original or b"")
    bare = _MARKED.sub("", text)
    pattern = f"{_default_folder(path)}/*.toml"
    # A template need not be TOML before it is rendered.
    if pattern in bare and pattern not in imports.listed(former):
        bare = imports.without_import(bare, pattern, empty_list="imports" in imports.document(former))
    return None if original is None and _ONLY_VERSION.fullmatch(bare) else imports.bytes_of(bare)


def needed_by_others(root: Root, journal: Journal, original: Original) -> str:
    """Why a file has to stay: something that others set up since needs it; empty where nothing does."""
    ours = [file.path for file in journal.originals.values() if file.step == NAME]
    mains = [path for path in ours if not is_whole(path)]
    folders = {path.rpartition("/")[0] for path in ours if is_whole(path)} | {_default_folder(path) for path in mains}
    theirs = [
        path
        for folder in sorted(folders)
        for path in root.glob(f"{folder}/*.toml")
        if root.is_file(path) and not _is_ours(root, journal, path)
    ]
    edited = [path for path in mains if not _is_ours(root, journal, path)]
    if any(_NVIDIA_IS_DEFAULT.search(root.read_text(path) or "") for path in [*theirs, *edited]):
        return "somebody else made nvidia the default runtime"
    if original.path in mains and theirs:
        return f"{', '.join(theirs)} is imported by it"
    nvidia = [path for path in theirs if path.endswith(NVIDIA_FILE)]
    return f"{nvidia[0]} of somebody else relies on it" if nvidia and original.path.endswith(RUNC_FILE) else ""


def _is_ours(root: Root, journal: Journal, path: str) -> bool:
    original, content = journal.originals.get(path), (root.read_text(path) or "").encode()
    if original is None:
        return False
    return journal.is_as_written(original, content) or (not original.written and looks_written(path, content))


def _stays(root: Root, journal: Journal, path: str) -> bool:
    """Whether a file stays though it is not wanted: the GPU Operator's, or one that others need by now."""
    original = journal.originals.get(path)
    return original is None or not _is_ours(root, journal, path) or bool(needed_by_others(root, journal, original))


def _default_folder(main: str) -> str:
    return f"{main.rpartition('/')[0]}/conf.d"


def _drop_in(context: Context) -> Step:
    root, layout = context.tools.root, context.layout
    major = _major(context)
    content = root.read_bytes(layout.config)
    main = f"version = {3 if major >= _MERGES_SINCE else 2}\n" if content is None else imports.text_of(content)
    imports.document(main, layout.config)
    version = imports.file_version(main)
    if version is None or version < _MERGES_SINCE:
        raise HostError(
            f"{layout.config} has no `version = 2` or later, so containerd takes it for version 1 and would ignore the "
            "nvidia runtime.",
            f"Write a full one: `containerd config default | sudo tee {layout.config}`, with SystemdCgroup = true "
            "where the kubelet uses systemd; nothing was changed.",
        )
    folder = _folder(main, layout)
    _refuse_what_is_no_file(root, folder, containerd_1=major < _MERGES_SINCE)
    files = effective.drop_ins(root, main, layout.config, folder)
    Files(main, folder, files).refuse_untried(layout.config, containerd_1=major < _MERGES_SINCE)
    others = {name: content for name, content in files.items() if name not in (NVIDIA_FILE, RUNC_FILE)}
    now = _merged(context, "now", main, files, folder)
    _refuse_without_cri(now, layout.config)
    ours = f"{folder}/{NVIDIA_FILE}" in context.journal.originals
    by_host = context.desired.toolkit.owner == "host"
    already_served = now.serves_nvidia and (now.nvidia_program[:1] != "/" or root.exists(now.nvidia_program))
    if by_host and already_served and not ours and not context.owes_restart(layout.unit):
        # Whoever followed NVIDIA's guide may have left out its last line, which restarts containerd.
        if service.runs_without(context.tools, layout.socket, [layout.config, *(f"{folder}/{name}" for name in files)]):
            detail = (
                "the nvidia runtime was set up by somebody else after containerd was started: left alone, restarted"
            )
            return Step(NAME, detail, service=service.for_layout(layout))
        return Step(NAME, "the nvidia runtime is in force already, not by this agent: left alone")
    if not by_host and major < _MERGES_SINCE:
        return Step(NAME, "containerd 1.x takes the GPU Operator's complete file: nothing to prepare")

    base = _merged(context, "base", main, others, folder)
    new_main = main if _takes_in_ours(main, layout, folder) else imports.with_import(main, f"{folder}/*.toml")
    drop_ins = dict(others)
    if major >= _MERGES_SINCE:
        drop_ins[RUNC_FILE] = _runc_table(base, version).encode()
    if by_host:
        # On 1.x the last file replaces the plugin's whole section, so it has to hold all of it.
        source = drop_ins[RUNC_FILE] if major >= _MERGES_SINCE else _whole_section(base).encode()
        # Somebody's choice, which nvidia-ctk takes out of that section unless it is told to keep it.
        default = major < _MERGES_SINCE and base.default_runtime == "nvidia"
        drop_ins[NVIDIA_FILE] = _with_nvidia(context, source, default=default)
    elif NVIDIA_FILE in files and _stays(root, context.journal, f"{folder}/{NVIDIA_FILE}"):
        drop_ins[NVIDIA_FILE] = files[NVIDIA_FILE]
    candidate = _merged(context, "candidate", new_main, drop_ins, folder)
    if by_host:
        candidate.refuse_worse_than(base)
    else:
        # What the GPU Operator's own file says is its own affair; what else the import puts into force is not.
        ours_alone = {name: content for name, content in drop_ins.items() if name != NVIDIA_FILE}
        _merged(context, "ours", new_main, ours_alone, folder).refuse_other_changes(base)
    changes = change_of(root, layout.config, content, imports.bytes_of(new_main))
    changes += _changes_of_ours(context, folder, drop_ins, merges=major >= _MERGES_SINCE)
    restart = candidate.in_force != now.in_force or context.owes_restart(layout.unit)
    return Step(
        NAME,
        _detail(f"{folder}, version {version} as the main file", by_host=by_host, merges=major >= _MERGES_SINCE),
        changes,
        service.for_layout(layout) if restart else None,
    )


def _refuse_what_is_no_file(root: Root, folder: str, *, containerd_1: bool) -> None:
    """Refuse what containerd does not start with: an imported folder, and before 2.0 a link to nothing."""
    for path in root.glob(f"{folder}/*.toml"):
        if root.path(path).is_dir() or (containerd_1 and not root.is_file(path)):
            raise HostError(
                f"{path} is no file, so containerd does not start once {folder} is imported.",
                "Remove it, then run again; nothing was changed.",
            )


def _changes_of_ours(
    context: Context, folder: str, drop_ins: Mapping[str, bytes], *, merges: bool
) -> tuple[Change, ...]:
    root = context.tools.root
    changes: tuple[Change, ...] = ()
    for name in (RUNC_FILE, NVIDIA_FILE):
        if name in drop_ins and merges:
            changes += change(root, f"{folder}/{name}", drop_ins[name], like=context.layout.config)
        elif name in drop_ins:
            # It repeats what stands in every file, perhaps a registry's password out of one that only root may read.
            changes += private_change(root, f"{folder}/{name}", drop_ins[name])
    return changes


def _detail(where: str, *, by_host: bool, merges: bool) -> str:
    what = "runc and nvidia" if by_host else "runc, which the GPU Operator's own file relies on,"
    detail = f"{what} in {where}"
    # Without merging, the last file wins with the plugin's whole section.
    frozen = (
        f"; containerd 1.x takes the whole Kubernetes section from {NVIDIA_FILE}: what is changed elsewhere later is "
        "in force only after the host was configured again"
    )
    return detail if merges else detail + frozen


def _template(context: Context) -> Step:
    """microk8s renders its configuration from a template of shell variables at each start."""
    root, layout = context.tools.root, context.layout
    if context.desired.toolkit.owner == "operator":
        return Step(NAME, f"the GPU Operator is told where {layout.name} keeps its configuration")
    content = root.read_bytes(layout.config)
    if content is None:
        raise HostError(f"{layout.config} does not exist.", f"Repair or reinstall {layout.name}.")
    template = imports.text_of(content)
    bare = _MARKED.sub("", template)
    version = imports.file_version(_rendered(bare)) or 1
    now = _merged(context, "now", _rendered(template), {}, layout.drop_ins)
    base = _merged(context, "base", _rendered(bare), {}, layout.drop_ins)
    if base.serves_nvidia and bare == template:
        return Step(NAME, "the template holds the nvidia runtime already: left alone")
    drop_in = _with_nvidia(context, _runc_table(base, version).encode())
    nvidia = Effective("", flatten(drop_in.decode("utf-8", "replace"))).runtime("nvidia")
    table = _table(("plugins", _plugin(version), "containerd", "runtimes", "nvidia"), nvidia)
    candidate_text = f"{bare}\n{_BEGIN}\n{table}{_END}\n"
    candidate = _merged(context, "candidate", _rendered(candidate_text), {}, layout.drop_ins)
    candidate.refuse_worse_than(base)
    restart = candidate.in_force != now.in_force or context.owes_restart(layout.unit)
    return Step(
        NAME,
        "nvidia at the end of the template",
        change_of(root, layout.config, content, imports.bytes_of(candidate_text)),
        service.for_layout(layout) if restart else None,
    )


def _rendered(template: str) -> str:
    values = {"SNAPSHOTTER": "overlayfs", "RUNTIME": "runc", "RUNTIME_TYPE": "io.containerd.runc.v2"}
    return _PLACEHOLDER.sub(lambda match: values.get(match.group(1), f"/{match.group(1).lower()}"), template)


def _merged(context: Context, name: str, main: str, drop_ins: Mapping[str, bytes], folder: str) -> Effective:
    files = Files(main, folder, drop_ins)
    return effective.merged(context.tools, context.layout, context.staging / name, files)


def _with_nvidia(context: Context, source: bytes, *, default: bool = False) -> bytes:
    toolkit.refuse_two_owners(context.tools.root)
    folder = context.staging / "nvidia-ctk"
    folder.mkdir()
    (folder / "source.toml").write_bytes(source)
    runtime = toolkit.runtime_path(context.tools.root)
    return ctk.containerd_runtime(context.tools, folder / "source.toml", runtime, default=default)


def _folder(main: str, layout: Layout) -> str:
    """The folder that the main file imports from already (older k8s-snaps do not use their base folder's)."""
    own = layout.config.rpartition("/")[0]
    folders = [entry[: -len("/*.toml")] for entry in _imports(main, layout) if entry.endswith("/*.toml")]
    plain = [folder for folder in folders if "*" not in folder and folder != own]
    return layout.drop_ins if layout.drop_ins in plain or not plain else plain[-1]


def _imports(main: str, layout: Layout) -> list[str]:
    return [imports.absolute(entry, layout.config) for entry in imports.listed(main)]


def _takes_in_ours(main: str, layout: Layout, folder: str) -> bool:
    patterns = [entry.rpartition("/") for entry in _imports(main, layout)]
    return any(
        where == folder and "*" in name and all(fnmatch.fnmatchcase(ours, name) for ours in (RUNC_FILE, NVIDIA_FILE))
        for where, _, name in patterns
    )


def _runc_table(base: Effective, version: int) -> str:
    runc = {key: value for key, value in base.runtime("runc").items() if value}
    if not runc:
        raise HostError(
            "containerd's configuration has no runc runtime to set nvidia beside.",
            "Add it to the main configuration, then run again; nothing was changed.",
        )
    table = _table(("plugins", _plugin(version), "containerd", "runtimes", "runc"), runc)
    return f"{_WRITTEN}; `restore` removes it.\nversion = {version}\n\n{table}"


def _whole_section(base: Effective) -> str:
    """The Kubernetes plugin's section, and nothing else of a dump.

    Above all not its imports: they name staged files, which a toolkit before 1.18 leaves where they are.
    """
    plugin = base.runtimes[:2]
    values = below(base.flat, plugin)
    spoilt = [".".join(key) for key, value in values.items() if _SPOILT in f"{key}{value}"]
    if spoilt:
        raise HostError(
            f"containerd's configuration is not in UTF-8, so these settings can't be repeated: {', '.join(spoilt)}.",
            "Write them in UTF-8, then run again; nothing was changed.",
        )
    return f"version = {_UNSPLIT_VERSION}\n\n{_table(plugin, values)}"


def _table(prefix: tuple[str, ...], values: Flat) -> str:
    """A table with its sub-tables as TOML, in a fixed order."""
    lines = []
    for sub in sorted({key[:-1] for key in values}):
        lines.append("[" + ".".join(_key(part) for part in (*prefix, *sub)) + "]")
        pairs = sorted((key[-1], value) for key, value in values.items() if key[:-1] == sub)
        # Strings, numbers, switches and lists of them are written alike in JSON.
        lines += [f"  {_key(name)} = {json.dumps(value, ensure_ascii=False)}" for name, value in pairs]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _plugin(version: int) -> str:
    return CRI_V3 if version >= _SPLIT_VERSION else CRI_V2


def _major(context: Context) -> int:
    program = context.layout.program(context.tools, "containerd")
    if program is None:
        where = ", ".join(context.layout.programs) or "PATH"
        raise HostError(f"The containerd of {context.layout.name} is not found in {where}.", "Install it first.")
    output = context.tools.check([program, "--version"], "Repair the installation of containerd.").output
    match = re.search(r"\sv?(\d+)\.\d+\.\d+", output)
    if match is None:
        raise HostError(f"`{program} --version` prints no version: {output.strip()!r}.", "Repair containerd.")
    return int(match.group(1))


def _refuse_without_cri(now: Effective, config: str) -> None:
    disabled = now.flat.get(("disabled_plugins",), [])
    if "cri" in disabled or CRI_V2 in disabled:
        raise HostError(
            f"{config} disables containerd's Kubernetes plugin, as Docker's package does: {disabled}.",
            f"Write a full one: `containerd config default | sudo tee {config}`, with SystemdCgroup = true where the "
            "kubelet uses systemd; nothing was changed.",
        )
