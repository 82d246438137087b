"""Every block of the documentation is executed, or says why it can't be: a new one without a home fails here.

Settings have their home by themselves: tests/unit/docs/test_settings.py reads and registers every yaml block.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifests.versions import KAI_SCHEDULER
from testbed.stacks import ROOT
from tests.support.docs import PAGES, blocks, command


@dataclass(frozen=True)
class RunBy:
    """The test that runs the block.

    Attributes:
        file: below tests/.
        test: the function's name.
        but: what stands in for what, where a part of it can't run.
    """

    file: str
    test: str
    but: str = ""


@dataclass(frozen=True)
class NotRun:
    """Why nothing runs the block."""

    why: str


_PICTURE = NotRun("a picture")
_DOCS = "engine/docs/test_guides.py"
_README = "engine/docs/test_readme.py"
_RECOVERY = "engine/stack/test_recovery.py"
_ROLLBACK = "engine/stack/test_rollback.py"
_S3 = "engine/stack/test_s3_state.py"
_SITE = "engine/docs/test_air_gapped.py"
_PLAN = "unit/docs/test_plan.py"
_STATUS = "unit/operations/status"
_FLEETS = "unit/docs/test_fleets.py"
_TEAMS = "engine/teams/test_repository.py"
_COMPONENT = "test_the_component_by_version_is_installed_and_upgraded_by_one_line"
_PROGRAM = "test_the_program_by_version_is_installed_and_upgraded_by_one_line"
_HERE = "the product is a Git repository here, with two tags"
_FEWER = "without the packages of the tests"
_HOSTS_ALONE = "test_a_stack_of_hosts_alone_is_made_as_the_page_says"
_ANSWERED = "the question of `pulumi up` is answered with yes"
_SAME = "the test of the guides runs it: docs/jetson.md has the same"
_PULLED = "the chart is made here: the official one needs the internet"

_IMAGES = "engine/charts/test_images.py"
_STAND_INS = "the charts are the stand-ins; no registry can be asked"

HOMES: Mapping[str, Sequence[tuple[str, RunBy | NotRun]]] = {
    "README.md": [
        (
            "make up",
            RunBy(
                _README,
                "test_make_up_installs_the_jetson_stack_and_says_what_is_there",
                but="`make test` is what runs this test",
            ),
        ),
        (
            "Stack 'jetson' is up on https://127.0.0.1:22419 (Kubernetes v1.36.3).",
            RunBy(_README, "test_make_up_ends_with_what_the_readme_shows"),
        ),
        ("Pulumi.<stack>.yaml ──► settings ──► manifests ──► components ──► Kubernetes", _PICTURE),
        (
            'eval "$(make env)"',
            RunBy(_README, "test_the_reservation_pod_of_the_readme_becomes_privileged"),
        ),
        (
            'eval "$(make env)"',
            RunBy(_README, "test_the_steps_on_a_cluster_of_ones_own_are_those_of_the_jetson_page", _SAME),
        ),
        (
            "pulumi up",
            RunBy(_README, "test_the_steps_on_a_cluster_of_ones_own_are_those_of_the_jetson_page", _SAME),
        ),
    ],
    "docs/commands.md": [
        ('eval "$(make env)"', RunBy(_README, "test_the_commands_of_their_page_look_at_the_simulator")),
        ("kai-anywhere verify", RunBy(_README, "test_the_commands_of_their_page_look_at_the_simulator")),
        ("held    components: 110 checks of doctor passed.", _PICTURE),
        ("Everything is installed, but does not work as the stack says (validation: after_up):", _PICTURE),
        ("kai-anywhere bundle", RunBy(_README, "test_the_commands_of_their_page_look_at_the_simulator")),
    ],
    "docs/compatibility.md": [
        (
            'kai-anywhere verify --evidence evidence.json --board "Jetson AGX Orin 64GB" --jetpack "6.2 (L4T 36.4.3)"',
            NotRun("a board; unit/operations/verify/test_compatibility.py runs it on a stand-in API server"),
        ),
    ],
    "docs/admission.md": [
        (
            "docker buildx build --platform linux/amd64,linux/arm64 --file agents/Containerfile \\",
            NotRun("no Docker and no registry; engine/programs/test_agents_image.py builds it where buildah is there"),
        ),
    ],
    "docs/monitoring.md": [
        (
            "docker buildx build --platform linux/amd64,linux/arm64 --file agents/metrics/Containerfile \\",
            NotRun("no Docker and no registry; engine/programs/test_metrics_image.py builds it where buildah is there"),
        ),
        (
            "kubectl --namespace kai-anywhere-monitoring get configmap kai-anywhere-alerts \\",
            RunBy(
                "engine/monitoring/test_stack.py",
                "test_a_stack_with_metrics_comes_stays_and_goes",
                but="the namespace is the stack's",
            ),
        ),
    ],
    "docs/air-gapped.md": [
        (
            f"helm pull {KAI_SCHEDULER.source} --version {KAI_SCHEDULER.version}",
            NotRun("the internet; unit/docs/test_facts.py compares address and version with the pins"),
        ),
        ('make images CHARTS="$(echo *.tgz)"', RunBy(_IMAGES, "test_the_guide_copies_every_image", _STAND_INS)),
        (
            r"""jq --raw-output '.images[] | "\(.pinned) \(.used_by[])/\(.name)"' images.jetson.lock.json |""",
            RunBy(_IMAGES, "test_the_guide_copies_every_image", but="a script stands in for skopeo"),
        ),
        ("kubectl get pods --all-namespaces \\", RunBy(_DOCS, "test_the_images_of_a_running_stack_are_listed")),
        ("kubectl create namespace gpu-operator", RunBy(_DOCS, "test_a_login_for_the_registry_comes_before_the_stack")),
        ("make install", RunBy(_SITE, "test_what_is_carried_in_is_all_that_is_needed", _FEWER)),
        (
            "export PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/carry/wheels",
            RunBy(_SITE, "test_what_is_carried_in_is_all_that_is_needed", _FEWER),
        ),
        (
            (
                "pulumi plugin install resource kubernetes 4.25.0 --file "
                "pulumi-resource-kubernetes-v4.25.0-linux-amd64.tar.gz"
            ),
            RunBy(_SITE, "test_plugins_are_installed_from_archives", but="the archives hold scripts of ours"),
        ),
        (
            f".venv/bin/python -m toolchain image ghcr.io/kai-scheduler/kai-scheduler/binder:{KAI_SCHEDULER.version}",
            RunBy(
                "engine/programs/test_image_programs.py",
                "test_the_guides_command_shows_where_the_program_lies",
                but="a registry on loopback has an image of KAI's form",
            ),
        ),
    ],
    "docs/index.md": [
        ("make up", RunBy(_README, "test_make_up_installs_the_jetson_stack_and_says_what_is_there")),
        (
            'eval "$(make env)"',
            RunBy(_README, "test_the_commands_of_the_sites_first_page_work"),
        ),
    ],
    "docs/distributions.md": [
        (
            "containerd config default | sudo tee /etc/containerd/config.toml",
            RunBy(_DOCS, "test_containerds_own_configuration_has_a_version_and_kubernetes_part", but="another folder"),
        ),
    ],
    "docs/gvirtus.md": [
        ("make up", RunBy(_DOCS, "test_a_job_with_a_remote_gpu_is_taken")),
        (
            "pod with the label                    in the API server                      namespace gvirtus-system",
            _PICTURE,
        ),
        (
            "apiVersion: v1",
            RunBy("support/gvirtus/contract.py", "test_the_pod_of_the_document_is_welcome_and_gets_its_gpu"),
        ),
    ],
    "docs/hosts.md": [
        (
            "pulumi config set --secret lab-key < ~/.ssh/lab",
            RunBy("engine/hosts/test_docs.py", "test_the_three_steps_prepare_a_host"),
        ),
        ("pulumi preview", RunBy("engine/hosts/test_docs.py", "test_the_three_steps_prepare_a_host", _ANSWERED)),
        ("pulumi stack init rack-1", RunBy("engine/hosts/test_docs.py", _HOSTS_ALONE)),
        (
            "pulumi config set --stack rack-1 --secret lab-key < ~/.ssh/lab",
            RunBy("engine/hosts/test_docs.py", _HOSTS_ALONE, _ANSWERED),
        ),
        ("pulumi stack output gpu_memory_mib --stack rack-1", RunBy("engine/hosts/test_docs.py", _HOSTS_ALONE)),
    ],
    "docs/jetson.md": [
        (
            "head -1 /etc/nv_tegra_release",
            RunBy(_DOCS, "test_a_board_tells_what_it_is", but="a board's files elsewhere"),
        ),
        ("sudo apt-get install nvidia-container", NotRun("a Jetson, JetPack's packages and the internet")),
        (
            'eval "$(make env)"',
            RunBy(_DOCS, "test_the_jetson_page_installs_the_stack", but="the state is elsewhere"),
        ),
        (
            "make preflight KUBECONFIG=~/.kube/config && pulumi up",
            RunBy(_DOCS, "test_the_jetson_page_installs_the_stack", _ANSWERED),
        ),
        ("kubectl apply -f examples/fraction.yaml", RunBy(_DOCS, "test_a_fraction_is_taken")),
        (
            "make probe-privilege NODE=jetson-1 KUBECONFIG=~/.kube/config",
            RunBy(
                "unit/operations/privilege_probe/test_command.py",
                "test_the_command_of_the_guide_names_node_and_kubeconfig",
                but="no board: a script stands in for Python",
            ),
        ),
    ],
    "docs/mixed-clusters.md": [
        (
            "make preflight KUBECONFIG=~/.kube/config",
            RunBy(_DOCS, "test_the_cluster_becomes_a_mixed_one", _ANSWERED),
        ),
        (
            (
                "kubectl get nodes -L kai-anywhere.io/platform,nvidia.com/gpu.memory,nvidia.com/gpu.count,"
                "nvidia.com/device-plugin.config"
            ),
            RunBy(_DOCS, "test_the_cluster_becomes_a_mixed_one"),
        ),
    ],
    "docs/plan.md": [
        (
            "kai-anywhere plan --gpu-memory-mib 131072 --request-mib 32768 --pods 4",
            RunBy(_PLAN, "test_a_command_of_the_page_works"),
        ),
        (
            "3 of 4 pods run, 1 Pending.",
            RunBy(_PLAN, "test_the_picture_of_the_page_is_what_the_first_command_prints"),
        ),
        (
            "kai-anywhere plan --gpu-memory-mib 122880 --machine-memory-mib 125772 --file examples/sharing.yaml",
            RunBy(_PLAN, "test_a_command_of_the_page_works"),
        ),
        (
            "kai-anywhere plan --gpu-memory-mib 131072 --request-mib 30720 --pods 5 --json",
            RunBy(_PLAN, "test_the_programs_read_what_the_page_promises"),
        ),
    ],
    "docs/policy.md": [
        (
            "make policy",
            RunBy("engine/policy/test_policy_docs.py", "test_the_two_commands_show_every_stack_and_every_exception"),
        ),
        (
            'eval "$(make --no-print-directory --directory ../kai-anywhere env)"',
            RunBy("engine/policy/test_policy_docs.py", "test_a_program_of_ones_own_is_stopped_as_the_sample_says"),
        ),
        (
            "Pod default/web: spec.containers[0].securityContext.privileged",
            RunBy("engine/policy/test_policy_docs.py", "test_a_program_of_ones_own_is_stopped_as_the_sample_says"),
        ),
        ("{", RunBy("engine/policy/test_policy_docs.py", "test_the_configuration_of_the_page_grants_what_it_says")),
        ("- rule: host-paths", RunBy("policy/test_choices.py", "test_the_exception_of_the_page_covers_what_it_says")),
    ],
    "docs/recovery.md": [
        (
            "pulumi cancel --yes --stack jetson",
            RunBy(_RECOVERY, "test_a_run_killed_between_objects_goes_on_where_it_was", _ANSWERED),
        ),
        (
            "kai-anywhere rollback --only-heal --stack jetson && pulumi up --stack jetson",
            RunBy(_ROLLBACK, "test_a_killed_installation_is_healed_and_up_goes_on", _ANSWERED),
        ),
        (
            "kubectl --namespace kai-scheduler delete secret sh.helm.release.v1.kai-scheduler.v2",
            RunBy(_RECOVERY, "test_a_run_killed_while_helm_upgrades_is_repaired"),
        ),
        (
            "kai-anywhere rollback --stack jetson",
            RunBy(_ROLLBACK, "test_everything_goes_and_what_is_somebody_elses_stays", _ANSWERED),
        ),
        (
            "pulumi destroy --run-program --stack jetson",
            RunBy(_DOCS, "test_destroy_gives_the_labels_back", _ANSWERED),
        ),
        (
            "make repair KUBECONFIG=~/.kube/config",
            RunBy(
                _RECOVERY,
                "test_somebody_who_changes_the_cluster_by_hand_is_overruled",
                but="the stack is elsewhere; what the target does is called, without make",
            ),
        ),
        (
            "find ~/.pulumi/stacks -name '*.attrs' -delete",
            RunBy(
                _RECOVERY,
                "test_a_run_killed_while_it_wrote_attributes_left_a_whole_state",
                _ANSWERED,
            ),
        ),
        (
            "pulumi stack import --stack jetson --file backup.json",
            RunBy(_RECOVERY, "test_a_state_put_back_from_an_older_one_catches_up", _ANSWERED),
        ),
    ],
    "docs/simulator.md": [
        ("make reset", NotRun("KAI's programs and its chart are of no package registry; run by hand with v0.17.0")),
    ],
    "docs/status.md": [
        ("kai-anywhere status", RunBy(f"{_STATUS}/test_command.py", "test_the_map_is_printed_and_nothing_is_changed")),
        (
            "lab (https://10.0.0.5:6443)",
            RunBy(f"{_STATUS}/test_text.py", "test_the_example_of_the_guide_is_what_is_printed"),
        ),
    ],
    "docs/teams.md": [
        (
            "kai-anywhere init clusters --stack prod --platform tegra --distribution k3s \\",
            RunBy("unit/operations/init/test_init.py", "test_the_command_of_the_guide_writes_what_the_guide_lists"),
        ),
        (
            "cd clusters",
            RunBy(_TEAMS, _PROGRAM, but=_HERE),
        ),
        (
            "pulumi new https://github.com/example/kai-anywhere/templates/component",
            RunBy(_TEAMS, "test_pulumi_new_makes_the_same", but="the folder in place of its address"),
        ),
        (
            "git rm --quiet Pulumi.jetson.yaml Pulumi.x86.yaml",
            RunBy(
                "unit/operations/init/test_init.py", "test_a_checkout_works_on_the_stacks_of_a_repository_of_ones_own"
            ),
        ),
        (
            "git fetch --quiet --tags",
            RunBy("unit/operations/init/test_init.py", "test_such_a_checkout_moves_to_the_next_version"),
        ),
        (
            "pulumi login 's3://kai-anywhere-state?region=eu-central-1' --non-interactive",
            RunBy(
                _S3,
                "test_the_commands_of_the_teams_guide_work",
                but="S3 and KMS are moto's",
            ),
        ),
        (
            "pulumi login 's3://kai-anywhere-state?region=eu-central-1' --non-interactive",
            RunBy(_S3, "test_the_commands_of_the_teams_guide_work", but="S3 is moto's"),
        ),
        ("make review", RunBy(_README, "test_the_review_and_the_drift_of_the_teams_guide_work")),
        (
            "pulumi package add github.com/example/kai-anywhere/package@v1.2.3",
            RunBy(
                "engine/stack/test_package_by_version.py",
                "test_a_program_in_python_has_the_types_of_the_version",
                but="the Git server is the test's",
            ),
        ),
        (
            "pulumi destroy --run-program --target-dependents \\",
            RunBy(
                "engine/stack/test_package.py",
                "test_a_program_in_yaml_installs_the_stack_with_many_nodes_and_removes_it",
                but="the stack's name is the test's",
            ),
        ),
        ("make drift", RunBy(_README, "test_the_review_and_the_drift_of_the_teams_guide_work")),
        (
            f"helm pull {KAI_SCHEDULER.source} --version {KAI_SCHEDULER.version}",
            RunBy(_DOCS, "test_a_newer_chart_is_checked", _PULLED),
        ),
    ],
    "docs/fleets.md": [
        (
            "kai-anywhere settings show berlin --folder clusters",
            RunBy(_FLEETS, "test_the_page_shows_which_file_says_what"),
        ),
        (
            "kai.queues.robots.gpu.quota: 2                      # Pulumi.berlin.yaml",
            RunBy(_FLEETS, "test_the_page_shows_which_file_says_what"),
        ),
        ("kai-anywhere fleet plan --folder clusters", RunBy(_FLEETS, "test_the_page_shows_the_order")),
        ("0. canary: 1 site; 0 may fail.", RunBy(_FLEETS, "test_the_page_shows_the_order")),
        (
            'kai-anywhere fleet operator --commit "$(git rev-parse HEAD)" --folder clusters > stacks.yaml',
            RunBy(_FLEETS, "test_the_operators_objects_are_printed"),
        ),
        (
            "kai-anywhere fleet status --folder clusters",
            RunBy("engine/fleet/test_sites.py", "test_all_sites_stand_in_one_table_by_their_states"),
        ),
    ],
    "docs/settings.md": [
        (
            "kai-anywhere settings explain kai.queues",
            RunBy("unit/operations/test_settings.py", "test_the_commands_of_the_page_answer"),
        ),
        (
            "pulumi config set --path 'kai-anywhere:settings.kai.scheduler.placement' spread",
            RunBy("engine/stack/test_shipped_stacks.py", "test_single_keys_are_set_as_the_page_of_settings_says"),
        ),
    ],
    "docs/troubleshooting.md": [
        (
            "kai-anywhere doctor --stack jetson",
            RunBy(_README, "test_the_commands_of_their_page_look_at_the_simulator"),
        ),
    ],
    "docs/upgrade.md": [
        ("pulumi stack export --stack jetson --file before.json", RunBy(_DOCS, "test_what_one_can_go_back_to_is_kept")),
        ("-      version: 1.2.3", RunBy(_TEAMS, _COMPONENT, but=_HERE)),
        ("git switch --create kai-anywhere-1.2.4", RunBy(_TEAMS, _COMPONENT, but=_HERE)),
        ("-kai-anywhere @ git+https://github.com/example/kai-anywhere@v1.2.3", RunBy(_TEAMS, _PROGRAM, but=_HERE)),
        ("git switch --create kai-anywhere-1.2.4", RunBy(_TEAMS, _PROGRAM, but=_HERE)),
        (
            'git commit --all --message "kai-anywhere 1.2.4"',
            RunBy(_TEAMS, _PROGRAM, but=f"{_HERE}; {_ANSWERED}"),
        ),
        (
            "git fetch --tags",
            RunBy(
                _DOCS,
                "test_another_version_of_the_program_takes_the_stack_over",
                but="`make policy` is run by engine/policy/test_policy_docs.py",
            ),
        ),
        (
            "helm pull oci://ghcr.io/kai-scheduler/kai-scheduler/kai-scheduler --version NEWER",
            RunBy(_DOCS, "test_a_newer_chart_is_checked", _PULLED),
        ),
        (
            "helm uninstall kai-scheduler --namespace kai-scheduler",
            RunBy(
                "engine/stack/test_kai_upgrade.py",
                "test_the_way_back_takes_kai_out_and_leaves_fractions_and_queues",
                but="the provider's uninstall stands in for Helm's command line",
            ),
        ),
        (
            "make preflight KUBECONFIG=~/.kube/config",
            RunBy(_DOCS, "test_the_policy_takes_over_from_the_webhook", _ANSWERED),
        ),
    ],
}
"""Every block that is no stack's settings: page, first line, and who runs it; in the pages' order."""


def _is_settings(language: str, text: str) -> bool:
    return language == "yaml" and not text.startswith("apiVersion:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_has_its_home(page: Path) -> None:
    lines = [block.first_line for block in blocks(page) if not _is_settings(block.language, block.text)]
    listed = HOMES.get(page.relative_to(ROOT).as_posix(), [])
    assert lines == [first_line for first_line, _ in listed]


def test_no_page_is_left_over() -> None:
    assert HOMES.keys() <= {page.relative_to(ROOT).as_posix() for page in PAGES}


@pytest.mark.parametrize(
    ("page", "home"),
    [
        pytest.param(page, home, id=f"{page}-{number}")
        for page, listed in HOMES.items()
        for number, (_, home) in enumerate(listed)
        if isinstance(home, RunBy)
    ],
)
def test_a_home_is_a_test_that_reads_the_page(page: str, home: RunBy) -> None:
    text = (ROOT / "tests" / home.file).read_text(encoding="utf-8")
    tests = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert home.test in tests
    assert page.rpartition("/")[2] in text


def test_a_block_is_found_by_its_first_line_alone() -> None:
    assert command("teams.md", "make drift") == "make drift\n"
    with pytest.raises(LookupError, match="has 2 blocks"):
        command("teams.md", "pulumi login 's3://kai-anywhere-state?region=eu-central-1' --non-interactive")
    with pytest.raises(LookupError, match="has 0 blocks"):
        command("teams.md", "make it so")
