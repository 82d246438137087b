"""The README's commands, run as a newcomer runs them: in a fresh checkout."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import simulator
from testbed.stacks import ROOT, STACK_FILES
from tests.support.checkout import fresh, shell
from tests.support.docs import blocks, command

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    re.sub(r"(?m)^ {3}", "", block) if block.startswith("   ") else block
    for block in re.findall(r"(?ms)^ *```bash\n(.*?)^ *```$", README)
]
"""The bash blocks, in the README's order, unindented."""

_KUBECONFIG = ".simulator/jetson/cluster/kubeconfig"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh clone with the installed environment of this one."""
    with fresh(tmp_path_factory.mktemp("clone") / "kai-anywhere") as folder:
        yield folder


@pytest.fixture(scope="module")
def summary(checkout: Path) -> str:
    """What the first `make up` prints."""
    return shell("make up", checkout)


def test_every_block_is_known_to_this_test() -> None:
    first_lines = [block.splitlines()[0] for block in BLOCKS]
    assert first_lines == [
        "make up",
        'eval "$(make env)"',
        'eval "$(make env)"',
        "pulumi up",
    ]


def test_the_steps_on_a_cluster_of_ones_own_are_those_of_the_jetson_page() -> None:
    # tests/engine/docs/test_guides.py does them, on a cluster in ~/.kube/config.
    opened = command("jetson.md", 'eval "$(make env)"')
    looked_at_first = command("jetson.md", "make preflight KUBECONFIG=~/.kube/config && pulumi up")
    assert BLOCKS[2:] == [opened, looked_at_first.partition(" && ")[2]]


def test_the_two_commands_are_the_ones_that_decide_what_lands() -> None:
    assert BLOCKS[0] == "make up\nmake test\n"
    assert "make test" in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()


def test_every_make_target_that_the_readme_and_the_page_of_commands_name_exists() -> None:
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)", README + commands))
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert named >= {"up", "test", "preview", "down", "check", "fmt", "preflight", "reset", "bench-preview"}
    assert named <= targets


def test_every_folder_that_the_readme_names_exists() -> None:
    for folder in re.findall(r"(?m)^\| `([a-z]+)/` \|", README):
        assert (ROOT / folder).is_dir(), folder


def _words(text: str) -> set[str]:
    """Its lines, whatever their width and the server's port."""
    return {
        " ".join(re.sub(r"127\.0\.0\.1:\d+", "...", line).split()) for line in text.splitlines() if "──" not in line
    }


class TestOnTheSimulator:
    """`make up` and what it leaves running."""

    def test_make_up_installs_the_jetson_stack_and_says_what_is_there(self, summary: str) -> None:
        output = summary
        for line in (
            "Stack 'jetson' is up on https://127.0.0.1:",
            "Simulated:",
            "with Tegra overrides",
            "Try next:",
        ):
            assert line in output
        assert "Traceback" not in output
        assert "from $PATH" not in output, "Pulumi's warning of plugins that it had to look for"

    def test_make_up_ends_with_what_the_readme_shows(self, summary: str) -> None:
        [shown] = [block.text for block in blocks(ROOT / "README.md", "text")]
        assert _words(shown) <= _words(summary)

    def test_the_reservation_pod_of_the_readme_becomes_privileged(self, checkout: Path) -> None:
        output = shell(BLOCKS[1], checkout)
        assert yaml.safe_load(output)["spec"]["containers"][0]["securityContext"]["privileged"] is True
        left = shell(f"{BLOCKS[1].splitlines()[0]}\nkubectl --kubeconfig {_KUBECONFIG} get pods -A", checkout)
        assert "gpu-reservation-" not in left

    def test_the_next_steps_of_the_summary_work(self, checkout: Path) -> None:
        output = shell("make preflight", checkout)
        assert "The simulator is ready for stack 'jetson'. Looked at the cluster at https://" in output
        assert "Simulated:" in output
        # As the summary says it: with the simulator's kubeconfig exported, `make` still means the simulator.
        exported = {"KUBECONFIG": str(checkout / _KUBECONFIG)}
        assert re.search(r"\d+ unchanged", shell("make preview", checkout, exported))

    def test_the_commands_of_their_page_look_at_the_simulator(self, checkout: Path) -> None:
        page = (checkout / "docs" / "commands.md").read_text(encoding="utf-8")
        environment, verify, bundle = re.findall(r"(?ms)^```bash\n(.*?)^```$", page)
        assert "verify" in shell(environment, checkout)
        warnings = 4  # KAI is emulated here, so that sharing is not verified
        output = shell(f"{environment.splitlines()[0]}\n{verify}", checkout, expect=warnings)
        assert re.search(r"(?m)^held    components: \d+ checks of doctor passed\.$", output)
        assert "held    reservation pods on jetson-1: they get what the stack says.\n" in output
        assert "privileged: true" in output
        assert "skipped sharing: KAI is emulated on this simulator" in output
        shell(f"{environment.splitlines()[0]}\n{bundle}", checkout)
        doctor = command("troubleshooting.md", "kai-anywhere doctor --stack jetson")
        assert "Nothing is wrong" in shell(f"{environment.splitlines()[0]}\n{doctor}", checkout)
        [written] = checkout.glob("kai-anywhere-bundle-*.tar.gz")
        with tarfile.open(written) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        assert names >= {"README.md", "settings.json", "versions.json", "objects/nodes.json", "objects/kai-queues.json"}
        assert "/kai-anywhere-bundle-*.tar.gz" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()

    def test_the_commands_of_the_sites_first_page_work(self, checkout: Path) -> None:
        output = shell(command("index.md", 'eval "$(make env)"'), checkout)
        assert "jetson-1  tegra, ready" in output
        assert "4 of 5 pods run, 1 Pending." in output

    def test_a_stack_file_edited_by_the_reader_is_what_make_up_applies(self, checkout: Path) -> None:
        file = checkout / "Pulumi.jetson.yaml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("jetson-1:", "my-jetson:"), encoding="utf-8")
        output = shell("make up", checkout)
        file.write_text(text, encoding="utf-8")
        assert re.search(r"my-jetson +tegra", output)

    def test_a_mistake_in_the_stack_file_is_told_and_changes_nothing(self, checkout: Path) -> None:
        file = checkout / "Pulumi.jetson.yaml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("gpu_memory_mib: 122880", "gpu_memory_mib: 120"), encoding="utf-8")
        output = shell("make up", checkout, expect=2)
        file.write_text(text, encoding="utf-8")
        assert "120 looks like GB" in output
        assert "Traceback" not in output

    def test_make_repair_puts_back_what_was_deleted_by_hand(self, checkout: Path) -> None:
        kubectl = f'eval "$(make env)" && kubectl --kubeconfig {_KUBECONFIG}'
        shell(f"{kubectl} delete queue robots", checkout)
        assert re.search(r"1 created", shell("make repair", checkout))
        assert "robots" in shell(f"{kubectl} get queues --output name", checkout)

    def test_the_review_and_the_drift_of_the_teams_guide_work(self, checkout: Path) -> None:
        # All of it was put back by `make repair`.
        guide = (checkout / "docs" / "teams.md").read_text(encoding="utf-8")
        for target in ("make review\n", "make drift\n"):
            assert f"```bash\n{target}```" in guide
            shell(target, checkout)
        text = (checkout / "review" / "comment.md").read_text(encoding="utf-8")
        assert "### Preview of `jetson`: nothing changes" in text
        assert "policy pack `kai-anywhere" in text
        assert not (checkout / "review" / "issue.md").exists()

    def test_make_down_removes_the_stack_and_stops_the_simulator(self, checkout: Path) -> None:
        output = shell("make down", checkout)
        assert re.search(r"\d+ deleted", output)
        assert "is stopped. `make reset STACK=jetson` forgets its data.\n" in output
        assert "pulumi stack rm" not in output, "it would not find the simulator's state"
        assert not simulator.status(checkout / ".simulator/jetson/cluster").running
        assert "The simulator of stack 'jetson' is gone, with its data." in shell("make reset", checkout)
        assert not (checkout / ".simulator/jetson/cluster").exists()

    def test_the_checkout_is_as_clean_as_before(self, checkout: Path) -> None:
        for original in (*STACK_FILES.iterdir(), ROOT / "Pulumi.yaml"):
            assert (checkout / original.name).read_bytes() == original.read_bytes()
