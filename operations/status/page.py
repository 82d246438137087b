"""What `kai-anywhere status` says, as one page of HTML that needs nothing else. Pure but for its own files."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import TypeVar

from operations.status.markup import Markup, element, joined
from operations.status.words import (
    age,
    amount,
    clean,
    count,
    device,
    gpus,
    missing,
    others,
    pods_or_dash,
    runs,
    short_proof,
    silent,
    state,
    summary,
)
from sharing_map.report import Fact, Gpu, NodeStatus, PendingPod, QueueStatus, Share, Status

_HERE = Path(__file__).parent
_OPEN_NODES = 8
"""As many nodes are unfolded from the start; of more, all are folded."""
_OPEN_PODS = 40
"""As many pods that wait likewise."""
_BAR = 1000
"""Width of a bar, in units of its own."""

T = TypeVar("T")


def page(status: Status, *, refresh_seconds: int = 0, away: str = "") -> str:
    """The page.

    Args:
        status: what it shows.
        refresh_seconds: how often it asks the server behind it for a new one; 0 where there is none.
        away: why `status` is an old one, where the cluster does not answer.
    """
    skeleton, style, script = (_file(f"page.{end}") for end in ("html", "css", "js"))
    return Template(skeleton).substitute(
        title=element("i", f"{status.context}: GPU sharing")[3:-4],
        policy=policy(refreshed=refresh_seconds > 0),
        style=style,
        script=script,
        refresh=refresh_seconds,
        map=_map(status, away),
    )


def policy(*, refreshed: bool) -> str:
    """The Content-Security-Policy: this page's own style and script, and nothing from anywhere."""
    hashes = {
        kind: b64encode(sha256(_file(name).encode()).digest()).decode()
        for kind, name in (("style-src", "page.css"), ("script-src", "page.js"))
    }
    sources = "; ".join(f"{kind} 'sha256-{value}'" for kind, value in hashes.items())
    connect = "; connect-src 'self'" if refreshed else ""
    return f"default-src 'none'; {sources}{connect}; base-uri 'none'; form-action 'none'"


@cache
def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8").strip()


def _map(status: Status, away: str) -> Markup:
    simulated = [element("p", "This cluster is a simulator.", class_="soft")] if status.simulated else []
    stale = [element("p", f"{clean(away)} This is what was read before.", class_="warn")] if away else []
    return element(
        "main",
        element("h1", f"GPU sharing on {clean(status.context)}"),
        element(
            "p",
            f"{clean(status.server)}, read at ",
            _time(status.taken),
            "; ages count from there.",
            class_="soft",
        ),
        *simulated,
        *stale,
        *(element("p", sentence) for sentence in summary(status)),
        _unseen(status),
        _pending_section(status),
        _queue_section(status.queues),
        _node_section(status),
        id="map",
    )


def _unseen(status: Status) -> Markup:
    if not status.unseen:
        return Markup()
    return element(
        "section",
        element("h2", "Not seen"),
        *(element("p", f"{gap.what}: {clean(gap.why)}", class_="warn") for gap in status.unseen),
    )


def _pending_section(status: Status) -> Markup:
    rows = [
        element(
            "tr",
            element("th", clean(f"{pod.namespace}/{pod.name}"), scope="row"),
            # Beside the name: on a phone the rest is out of the window.
            element("td", *_reasons(pod, status), class_="why"),
            element("td", clean(pod.asks.value) if pod.asks else "no GPU", class_="asks"),
            element("td", clean(pod.queue or "none")),
            element("td", clean(pod.node) if pod.node else "not scheduled"),
            element("td", age(status.taken, pod.created)),
        )
        for pod in status.pending
    ]
    if not rows:
        return Markup()
    columns = ("Pod", "Why", "Asks for", "Queue", "Node", "Age")
    return element(
        "section",
        element("h2", "Pending"),
        _foldable(f"{count(len(rows), 'pod')} waiting", _table("Pods that wait, and why", columns, rows), _OPEN_PODS),
    )


def _reasons(pod: PendingPod, status: Status) -> Iterable[Markup]:
    for reason in pod.reasons:
        yield element("div", clean(reason.value))
        yield element("div", _proof(reason, status, whole=True), class_="proof")
    if not pod.reasons:
        yield element("div", "Nothing says why yet.")


def _foldable(title: str, table: Markup, open_rows: int) -> Markup:
    opened = "" if table.count("<tr>") <= open_rows else None
    inside = element("div", table, class_="inside")
    return element("details", element("summary", title), inside, id="pending", open=opened)


def _queue_section(queues: Sequence[QueueStatus]) -> Markup:
    if not queues:
        return Markup()
    rows = [
        element(
            "tr",
            element("th", clean(queue.name), scope="row", class_=f"depth-{min(queue.depth, 3)}"),
            *(element("td", gpus(fact.value), class_="number") for fact in (queue.quota, queue.limit, queue.used)),
            element("td", gpus(queue.reported.value), class_="number"),
            element("td", pods_or_dash(queue.pods), class_="number"),
            element("td", pods_or_dash(queue.pending), class_="number"),
            element("td", queue.difference or "", class_="soft why"),
        )
        for queue in queues
    ]
    columns = ("Queue", "Quota", "Limit", "Used", "KAI says", "Pods", "Pending", "Difference")
    first = queues[0]
    proofs = (
        f"Quota: {short_proof(first.quota)}; Limit: {short_proof(first.limit)}; KAI says: {short_proof(first.reported)}"
    )
    return element(
        "section",
        element("h2", "Queues"),
        _table("KAI's queues, in GPUs; each counts those below it", columns, rows, numbers=range(1, 7)),
        element("p", f"{proofs}. Used: what the pods come to, as KAI's scheduler charges them.", class_="proof"),
    )


def _node_section(status: Status) -> Markup:
    nodes = [node for node in status.nodes if node.has_gpus]
    without = [node for node in status.nodes if not node.has_gpus]
    few = len(nodes) <= _OPEN_NODES
    rest = (
        element(
            "details",
            element("summary", f"{count(len(without), 'node')} without GPUs"),
            element("p", clean(", ".join(node.name for node in without)), class_="inside"),
            id="without-gpus",
        )
        if without
        else Markup()
    )
    return element(
        "section",
        element("h2", "Nodes"),
        element("div", *(_node(node, status, opened=few) for node in nodes), id="nodes"),
        rest,
    )


def _node(node: NodeStatus, status: Status, *, opened: bool) -> Markup:
    return element(
        "details",
        element(
            "summary",
            element("h3", clean(node.name)),
            element("span", *(_bar(gpu) for gpu in node.gpus), class_="bars"),
            element("span", _free(node), class_="said"),
        ),
        element(
            "div",
            *(element("p", clean(remark), class_="warn") for remark in node.remarks),
            *(_gpu(number, gpu, status) for number, gpu in enumerate(node.gpus, start=1)),
            _others(node, status),
            *([_facts(node, status)] if node.ready.value is not None else []),
            class_="inside",
        ),
        id=f"node-{node.name}",
        open="" if opened else None,
    )


def _free(node: NodeStatus) -> str:
    parts = [clean(node.platform.value or node.architecture)]
    if node.ready.value is None:
        parts = [missing(node)]
    parts += ["NOT READY"] if node.ready.value is False else []
    parts += ["CORDONED"] if node.cordoned.value else []
    parts += ["tainted"] if node.to_tolerate else []
    parts += [clean(f"node pool '{node.pool.value}'")] if node.pool.value else []
    free = [max(0, gpu.free_mib) for gpu in node.gpus if gpu.free_mib is not None]
    if free and node.sharing.value == "kai":
        parts.append(f"{sum(free)} MiB free")
    elif node.sharing.value == "time-slicing":
        parts.append("time-sliced")
    parts.append(count(sum(len(gpu.shares) for gpu in node.gpus) + len(node.other_pods), "pod"))
    parts += [count(len(node.remarks), "remark")] if node.remarks else []
    return ", ".join(part for part in parts if part)


def _facts(node: NodeStatus, status: Status) -> Markup:
    facts: list[tuple[str, str, Markup]] = [
        ("Ready", "yes" if node.ready.value else "no", _proof(node.ready, status)),
        ("Cordoned", "yes" if node.cordoned.value else "no", _proof(node.cordoned, status)),
        ("Taints", ", ".join(node.taints.value) or "none", _proof(node.taints, status)),
        ("Platform", node.platform.value or "not labelled", _proof(node.platform, status)),
        ("Node pool", node.pool.value or "none", _proof(node.pool, status)),
        ("Sharing", node.sharing.value, _proof(node.sharing, status)),
        ("Physical GPUs", str(node.gpu_count.value), _proof(node.gpu_count, status)),
        ("Advertised GPUs", str(node.advertised.value), _proof(node.advertised, status)),
        ("Memory of a GPU", node.memory_label.value or "not labelled", _proof(node.memory_label, status)),
    ]
    if node.shared_mib is not None and any(gpu.total_mib is not None for gpu in node.gpus):
        facts.append(("KAI shares of it", f"{node.shared_mib} MiB", joined("the label, rounded down to 100 MiB")))
    rows = [
        element(
            "tr", element("th", name, scope="row"), element("td", clean(value)), element("td", proof, class_="proof")
        )
        for name, value, proof in facts
    ]
    return _table(f"What {clean(node.name)} says of itself", ("Fact", "Value", "Proof and age"), rows)


def _gpu(number: int, gpu: Gpu, status: Status) -> Markup:
    about = [element("p", _group(gpu, status), class_="proof")] if gpu.group is not None else []
    table = [_shares("Pods on this GPU", gpu.shares, status)] if gpu.shares else []
    return joined(element("h4", f"GPU {number}: {amount(gpu)}"), _bar(gpu), *about, *table)


def _group(gpu: Gpu, status: Status) -> Markup:
    held = gpu.reservation
    group = f"GPU group {clean(gpu.group or '')}"
    if held is None:
        return joined(f"{group}, without a reservation pod.")
    if held.device.value is None:
        return joined(f"{group}: {held.name} has not answered yet ({silent(held)}): ", _proof(held.device, status))
    now = "" if runs(held) else f", and its reservation pod is {clean(held.kubectl_status)} now"
    return joined(f"{group} is {device(held.device.value)}{now}: ", _proof(held.device, status, whole=True))


def _others(node: NodeStatus, status: Status) -> Markup:
    if not node.other_pods:
        return Markup()
    return _shares(others(node), node.other_pods, status)


def _shares(caption: str, shares: Sequence[Share], status: Status) -> Markup:
    rows = [
        element(
            "tr",
            element("th", clean(f"{share.namespace}/{share.name}"), scope="row"),
            element("td", clean(share.asks.value), element("div", _proof(share.asks, status), class_="proof")),
            element("td", state(share), element("div", _proof(share.state, status), class_="proof")),
            element("td", clean(share.queue or "none")),
        )
        for share in shares
    ]
    return _table(caption, ("Pod", "Asks for", "State", "Queue"), rows)


def _table(caption: str, columns: Sequence[str], rows: Sequence[Markup], numbers: Iterable[int] = ()) -> Markup:
    right = set(numbers)
    heads = (
        element("th", name, scope="col", class_="number" if index in right else None)
        for index, name in enumerate(columns)
    )
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *heads)),
            element("tbody", *rows),
        ),
        class_="scroll",
    )


def _bar(gpu: Gpu) -> Markup:
    """A GPU's memory as a picture, with its meaning in words."""
    parts, before = [], 0
    total = gpu.total_mib or 0
    if gpu.use == "whole":
        parts = [_part(0, _BAR, "part")]
    for index, share in enumerate(gpu.shares if total and gpu.use == "shared" else ()):
        start, before = before, before + (share.mib or 0)
        style = "part over" if before > total else "part odd" if index % 2 else "part"
        begin = min(start * _BAR // total, _BAR)
        parts.append(_part(begin, min(before * _BAR // total, _BAR) - begin, style))
    return element(
        "svg",
        *parts,
        class_="bar",
        viewBox=f"0 0 {_BAR} 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=amount(gpu),
    )


def _part(start: int, width: int, style: str) -> Markup:
    # A gap between neighbours, so that they are told apart without colours too.
    return element("rect", x=start, width=max(1, width - 3), height=10, class_=style)


def _proof(fact: Fact[T], status: Status, *, whole: bool = False) -> Markup:
    """What proves a fact, and how old it is; without the object where that stands beside it."""
    proof = clean(fact.proof) if whole else short_proof(fact)
    old = age(status.taken, fact.since)
    if fact.since is None or not old:
        return joined(proof)
    return joined(f"{proof}, ", _time(fact.since, old))


def _time(moment: datetime, text: str = "") -> Markup:
    moment = moment.astimezone(UTC)
    return element("time", text or f"{moment:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{moment:%Y-%m-%dT%H:%M:%SZ}")
