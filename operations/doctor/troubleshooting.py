"""docs/troubleshooting.md, made of the checks: one section for each code, which is its anchor."""

from collections.abc import Iterator, Sequence

from operations.doctor.check import SUPPRESS, Category, Check, filled_in
from operations.doctor.checks import CHECKS
from operations.doctor.facts import Facts

_ABOUT = {
    Category.CLUSTER: "The cluster, and what was installed",
    Category.KAI: "KAI's control plane",
    Category.GPU_OPERATOR: "The GPU Operator",
    Category.NODES: "Nodes",
    Category.RESERVATION: "Reservation pods and binding",
    Category.QUEUES: "Queues",
    Category.PODS: "Workloads",
    Category.GVIRTUS: "Remote GPUs",
    Category.ADMISSION: "Admission",
    Category.HOSTS: "Hosts, with `--hosts`",
    Category.MONITORING: "Metrics",
}


_INTRODUCTION = f"""\
# Troubleshooting

`kai-anywhere doctor` looks for everything on this page, on hosts only with `--hosts`. It changes nothing. It prints
each cause with what follows from it, the evidence, and what to do. `kai-anywhere doctor pod NAME` says in one sentence
why a pod does not run. This page is made of the same checks (`operations/doctor/checks`): do not edit it.

```bash
kai-anywhere doctor --stack jetson
```

| Option | Does |
| --- | --- |
| `--stack` | Compare with what a stack says, too. Without it, the cluster alone is looked at. |
| `--hosts` | Ask the stack's hosts, too, over SSH as `pulumi up` does. Nothing is written there. |
| `--only`, `--skip` | Look at one category (below), or leave one out. |
| `--suppress` | Do not report a code. For one object, annotate it: `{SUPPRESS}`, with commas between codes. |
| `--fail-on warning` | Exit status 3 for warnings too; without it they give 4. |
| `--wait SECONDS` | Look again until nothing fails, at most this long. |
| `--json` | Everything, for programs: [the schema](doctor.schema.json). |

With fewer rights than it needs, it looks at what you may read, and names the checks that it could not do. The
[exit status](commands.md#exit-status) is then 4. `doctor pod` needs no more than the right to list pods in the pod's
namespace; with events, KAI's pod groups and bind requests there it says more. What only a host knows, such as the files
of its container runtime, is looked at with `--hosts`: [how](hosts.md#a-look-at-hosts).

`repair` and `rollback` change the cluster that `KUBECONFIG` or the stack's settings name; without either, the stack's
simulator. A stack of a repository of your own needs [a checkout with its files](teams.md#the-commands-on-your-machine).
"""


def page(checks: Sequence[Check] = CHECKS) -> str:
    """The page."""
    lines = [*_contents(checks), *(line for category in Category for line in _category(category, checks))]
    return "\n".join([_INTRODUCTION, *lines]).rstrip() + "\n"


def _contents(checks: Sequence[Check]) -> Iterator[str]:
    for category in Category:
        listed = sorted(check.code for check in checks if check.category is category)
        links = ", ".join(f"[{code}](#{code.lower()})" for code in listed)
        yield f"- {_ABOUT[category]} (`{category.value}`): {links}"
    yield ""


def _category(category: Category, checks: Sequence[Check]) -> Iterator[str]:
    yield f"## {_ABOUT[category]}"
    yield ""
    for check in sorted((check for check in checks if check.category is category), key=lambda check: check.code):
        yield from _check(check)


def _check(check: Check) -> Iterator[str]:
    yield f"### {check.code}"
    yield ""
    yield f"**{check.title}** ({check.severity.value})"
    yield ""
    yield f"- Symptom: {check.symptom}"
    yield f"- Cause: {check.cause}"
    yield f"- Remedy: {_remedy(check)}"
    yield f"- Source: {check.source}."
    if check.explains:
        explained = ", ".join(f"[{code}](#{code.lower()})" for code in sorted(check.explains))
        yield f"- May be the cause of: {explained}"
    yield ""


def _remedy(check: Check) -> str:
    """With names for what a finding fills in."""
    return filled_in(check.remedy, {"name": "NAME", "namespace": "NAMESPACE", **Facts().names})
