"""What can go wrong, what is expected then, and which tests prove it: one row per fault.

The numbers are fixed: reports and pages name them. A row has tests, or a reason why it can't run here; a row that runs
in part has both.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One row.

    Attributes:
        number: of the row, for good.
        what: goes wrong.
        expected: what a person or the cluster sees then.
        tests: the tests that prove it, as pytest names them.
        not_here: what of it can't run here, and why.
    """

    number: int
    what: str
    expected: str
    tests: tuple[str, ...] = ()
    not_here: str = ""


_ENGINE = "tests/engine"
_STACK = f"{_ENGINE}/stack"
_ADMISSION = f"{_ENGINE}/admission"
_HERE = "tests/faults"
_ONE = f"{_STACK}/test_faults.py::TestOneInstallation"
_INTERRUPTED = f"{_HERE}/test_interrupts.py::TestOneInstallation"
_DEPLOYED = f"{_STACK}/test_recovery.py::TestADeployedStack"
_KILLED = f"{_STACK}/test_recovery.py::test_a_run_killed_between_objects_goes_on_where_it_was"

FAULTS: tuple[Fault, ...] = (
    Fault(
        1,
        "`pulumi up` is killed between two objects",
        "The state is whole and the lock stays; the next `up` is refused, and told about the lock.",
        (_KILLED,),
    ),
    Fault(
        2,
        "... and then `pulumi cancel` and `pulumi up`",
        "Everything is there once; a further `up` changes nothing.",
        (_KILLED,),
    ),
    Fault(
        3,
        "Objects were made that the state does not know",
        "The next run takes its own objects over by their names; `rollback` finds them too.",
        (
            f"{_DEPLOYED}::test_a_state_put_back_from_an_older_one_catches_up",
            f"{_STACK}/test_rollback.py::test_a_killed_installation_is_undone_whole",
        ),
    ),
    Fault(
        4,
        "A run is killed while Helm installs",
        "`up` names the half-done release and its remedy; there is never a second release. Where it was killed while "
        "pods start, nothing is half done, and the next `up` goes on.",
        (
            f"{_INTERRUPTED}::test_where_pods_never_start_up_names_them_and_a_run_that_was_killed_there_goes_on",
            f"{_ONE}::test_a_run_killed_inside_the_first_release_is_explained_with_its_remedy",
            f"{_ONE}::test_a_run_killed_inside_the_last_release_is_explained_and_its_remedy_lets_the_next_run_converge",
            f"{_STACK}/test_rollback.py::test_a_killed_installation_is_healed_and_up_goes_on",
        ),
    ),
    Fault(
        5,
        "A run is killed while Helm upgrades",
        "As above; the revision before is the newest again.",
        (
            f"{_DEPLOYED}::test_a_run_killed_while_helm_upgrades_is_repaired",
            f"{_STACK}/test_rollback.py::test_a_killed_upgrade_is_healed",
        ),
    ),
    Fault(
        6,
        "Ctrl-C, once and twice",
        "Once: the run ends in order, without a lock or a half-done release. Twice: as a kill.",
        (
            f"{_INTERRUPTED}::test_ctrl_c_inside_helm_ends_the_release_in_order_and_the_next_run_converges",
            f"{_INTERRUPTED}::test_ctrl_c_twice_is_a_kill_and_the_page_of_recovery_helps",
            f"{_INTERRUPTED}::test_a_release_that_ended_while_its_run_was_killed_is_undone_by_rollback",
            "tests/unit/operations/test_terminal.py::test_pulumi_ends_by_itself_after_ctrl_c_and_the_sentence_comes_after_it",
        ),
    ),
    Fault(
        7,
        "Two runs at once",
        "One ends well, the other is told who works on the stack.",
        (
            f"{_DEPLOYED}::test_two_runs_at_once_one_ends_and_the_other_is_told",
            f"{_STACK}/test_s3_state.py::test_two_at_once_one_is_told_who_works_on_the_stack",
        ),
    ),
    Fault(
        8,
        "The checkpoint is cut short",
        "`failed to load checkpoint`; the backup beside it, or an export, puts it back.",
        (
            f"{_DEPLOYED}::test_a_checkpoint_copied_back_catches_up",
            f"{_DEPLOYED}::test_a_run_killed_while_it_wrote_attributes_left_a_whole_state",
            f"{_STACK}/test_s3_state.py::test_a_broken_checkpoint_is_restored_from_the_backup",
        ),
    ),
    Fault(
        9,
        "S3 answers 500 or 503 to writes of the state, for a moment and for good",
        "A moment is retried; for good is a failure that leaves the state before, and the next run converges.",
        (
            f"{_STACK}/test_s3_state.py::test_a_passing_failure_of_s3_is_retried",
            f"{_HERE}/test_state.py::test_a_bucket_that_fails_for_longer_than_it_is_retried_ends_the_run_and_the_next_converges",
        ),
    ),
    Fault(
        10,
        "S3 can't be reached, has no such bucket, refuses the credentials or the machine's clock",
        "The run fails before the program runs.",
        (
            f"{_HERE}/test_state.py::test_a_bucket_that_refuses_the_request_or_that_nobody_serves_fails_before_the_program_runs",
            f"{_STACK}/test_s3_state.py::test_an_s3_that_stays_down_fails_before_anything_is_changed",
            f"{_STACK}/test_s3_state.py::test_a_missing_bucket_is_named_before_anything_is_changed",
            f"{_STACK}/test_s3_state.py::test_a_denied_bucket_fails_before_anything_is_changed",
        ),
    ),
    Fault(
        11,
        "The lock is taken away by hand while a run is at work",
        "The next runs converge; nothing is in the state twice.",
        (f"{_HERE}/test_state.py::test_a_lock_taken_away_under_a_run_costs_another_run_and_no_part_is_there_twice",),
    ),
    Fault(
        12,
        "The disk of the state is full or read-only",
        "The run fails with the system's words; the state before can be read, and the next run converges.",
        (
            f"{_HERE}/test_state.py::test_a_disk_that_takes_no_state_is_an_error_and_the_state_before_is_whole",
            "tests/hosts/test_kills.py::test_a_full_or_read_only_disk_changes_nothing",
        ),
    ),
    Fault(
        13,
        "The passphrase is wrong, or the key of KMS is denied",
        "The run fails before the program runs, and shows no secret.",
        (
            f"{_HERE}/test_state.py::test_a_wrong_passphrase_stops_before_the_program_runs",
            f"{_STACK}/test_s3_state.py::test_without_the_key_the_secrets_are_unreadable_and_nothing_runs",
        ),
    ),
    Fault(
        14,
        "The API server dies in the middle of an `up`, and returns",
        "The run goes on or fails; the next one converges.",
        (
            f"{_HERE}/test_interrupts.py::test_a_server_that_dies_mid_run_and_returns_leaves_nothing_noted_that_is_not_there",
            f"{_ONE}::test_what_an_operator_does_not_make_and_a_killed_api_server_only_cost_another_run",
        ),
    ),
    Fault(
        15,
        "The API server can't be reached from the start",
        "`up` says which address it asked; nothing is forgotten.",
        (
            f"{_STACK}/test_faults.py::test_an_unreachable_cluster_stops_up",
            f"{_STACK}/test_cluster_identity.py::test_a_refresh_on_a_machine_that_never_saw_the_cluster_forgets_nothing",
        ),
    ),
    Fault(
        16,
        "etcd dies under the API server, and returns",
        "As 14; the state has nothing that the cluster lacks.",
        (
            f"{_HERE}/test_interrupts.py::test_a_server_that_dies_mid_run_and_returns_leaves_nothing_noted_that_is_not_there",
            f"{_STACK}/test_simulator.py::test_all_killed_at_once_come_back_with_the_data",
        ),
    ),
    Fault(
        17,
        "The context leads to another cluster",
        "Every command refuses, and names both clusters.",
        (
            f"{_STACK}/test_cluster_identity.py::test_our_commands_refuse_the_other_cluster_and_name_it",
            f"{_STACK}/test_cluster_identity.py::test_an_up_with_refresh_under_the_other_context_is_refused_and_forgets_nothing",
            f"{_ONE}::test_it_keeps_to_its_cluster_and_a_second_stack_takes_nothing_of_it",
        ),
    ),
    Fault(
        18,
        "No replica of the webhook answers, with `failurePolicy: Fail`",
        "The pods that it is for are refused; all others, and its own, go on. It recovers with the first replica.",
        (
            f"{_ADMISSION}/test_webhook_conformance.py::TestWhileNoReplicaAnswers::test_reservation_pods_are_refused_and_everything_else_goes_on",
            f"{_ENGINE}/gvirtus/test_webhook.py::test_while_no_replica_answers_labelled_pods_alone_are_refused",
        ),
    ),
    Fault(
        19,
        "The same, after somebody wrote `failurePolicy: Ignore`",
        "The pod comes unchanged, and the guard refuses it.",
        (
            f"{_ADMISSION}/test_broken_answers.py::test_a_webhook_that_was_told_to_let_pods_through_is_caught_by_the_guard",
        ),
    ),
    Fault(
        20,
        "The webhook is slow, or answers 500, no JSON, another review, or a patch that is huge or fits nowhere",
        "The pod is refused within the timeout, with the cause; the API server's metrics count it.",
        (
            f"{_ADMISSION}/test_broken_answers.py::test_a_wrong_answer_refuses_the_pod_in_bounded_time_and_others_go_on",
            f"{_ADMISSION}/test_webhook_conformance.py::test_a_slow_answer_counts_within_the_timeout_alone",
        ),
    ),
    Fault(
        21,
        "The webhook's certificate expires, is exchanged, or is not the one that API servers trust",
        "It is renewed without a restart and without a failed request; until they agree, as 18.",
        (
            f"{_ADMISSION}/test_certificates.py::test_certificates_of_two_minutes_rotate_and_expire_under_load_without_a_failed_request",
            f"{_ADMISSION}/test_certificates.py::TestWhatIsLostIsMadeAgain::test_a_bundle_that_somebody_writes_over_is_put_right",
            f"{_ADMISSION}/test_webhook_conformance.py::test_a_server_that_can_not_be_trusted_is_one_that_does_not_answer",
        ),
    ),
    Fault(
        22,
        "All replicas of the webhook are gone, and their own pods must be admitted",
        "They are: its namespace and kube-system are never asked about.",
        (
            f"{_ADMISSION}/test_webhook_conformance.py::TestWhileNoReplicaAnswers::test_the_server_itself_and_kube_system_start_with_nobody_to_ask",
        ),
    ),
    Fault(
        23,
        "A policy or its binding is deleted or edited by hand",
        "`preview --refresh` names it, `up --refresh` puts it back.",
        (
            f"{_STACK}/test_lifecycle.py::test_what_was_edited_and_deleted_by_hand_is_found_and_repaired",
            f"{_STACK}/test_doctor.py::test_a_binding_of_the_overrides_that_is_gone_is_found_and_repaired",
        ),
    ),
    Fault(
        24,
        "A reservation pod goes through admission twice",
        "Everything is added once.",
        (
            f"{_ENGINE}/reservation/test_pods.py::test_a_second_round_of_admission_changes_nothing",
            f"{_ADMISSION}/test_both_carriers.py::test_a_second_pass_changes_nothing",
        ),
    ),
    Fault(
        25,
        "Somebody takes fields by force, ours or those of KAI's Config",
        "Ours come back with one run, and no run flaps. The Config is its chart's: it comes back with the "
        "release's next change.",
        (f"{_HERE}/test_cluster.py::test_fields_taken_by_force_come_back_once_and_no_run_flaps",),
    ),
    Fault(
        26,
        "A CustomResourceDefinition is gone, or is replaced by another version's",
        "A clear error and no half-made object; once it is back, the next run converges.",
        (
            f"{_HERE}/test_cluster.py::test_a_definition_that_is_gone_is_a_clear_error_and_once_it_is_back_the_next_run_converges",
            f"{_STACK}/test_kai_upgrade.py::test_fractions_outlive_the_upgrade_and_the_new_kai_has_the_mode",
            f"{_STACK}/test_kai_upgrade.py::test_the_way_back_takes_kai_out_and_leaves_fractions_and_queues",
        ),
        "definitions of KAI's own charts, which need the internet; stand-ins of them are upgraded.",
    ),
    Fault(
        27,
        "A host reboots, or is lost in the middle of a command",
        "A bounded error; the next run converges.",
        (
            f"{_ENGINE}/hosts/test_faults.py::test_hosts_that_are_lost_mid_command_are_an_error_and_the_next_run_converges",
            f"{_ENGINE}/hosts/test_faults.py::test_a_host_that_reboots_while_it_is_dialled_is_waited_for_and_another_board_can_take_its_place",
            f"{_ENGINE}/hosts/test_network.py::test_a_link_that_goes_down_mid_command_is_a_bounded_error_and_the_next_run_converges",
        ),
    ),
    Fault(
        28,
        "A node disappears and returns, or returns as another machine",
        "It is named and nothing is changed; when it is back, it gets its labels again.",
        (
            f"{_HERE}/test_cluster.py::test_a_node_that_is_gone_is_named_and_one_that_returns_gets_its_labels_again",
            f"{_HERE}/test_cluster.py::test_a_repair_forgets_a_node_that_left_cluster_and_stack_and_installs_an_operator_that_somebody_removed",
            f"{_ENGINE}/hosts/test_faults.py::test_a_host_that_is_not_what_the_stack_says_is_left_alone_and_the_next_run_goes_on",
        ),
    ),
    Fault(
        29,
        "Settings are wrong: an unknown key, a wrong type, nothing, Jetsons that are none",
        "An error with file and key before anything is registered.",
        (
            f"{_STACK}/test_faults.py::test_a_wrong_setting_stops_before_anything_is_registered",
            f"{_STACK}/test_faults.py::test_no_settings_at_all_say_where_to_copy_them_from",
            f"{_STACK}/test_faults.py::test_every_finding_of_preflight_is_listed_at_once",
        ),
    ),
    Fault(
        30,
        "A policy raises an error, or the pack dies at its start",
        "The run fails and nothing is made; a pack that dies is told with its last words.",
        (
            f"{_HERE}/test_policy_pack.py::test_a_policy_that_raises_an_error_fails_preview_and_up_and_nothing_is_made",
            f"{_ENGINE}/policy/test_policy.py::TestGuard::test_a_pack_that_dies_at_its_start_is_told_with_its_last_words",
        ),
    ),
    Fault(
        31,
        "A policy is violated under `up --skip-preview`",
        "The offender is not made.",
        (
            f"{_ENGINE}/policy/test_policy.py::TestOnStacks::test_a_tampered_stack_fails_names_every_field_and_creates_nothing",
        ),
    ),
    Fault(
        32,
        "The pack was left out, or its configuration weakens it",
        "The check that proves the pack finds it by its canaries.",
        (
            f"{_ENGINE}/policy/test_policy.py::TestGuard::test_another_pack_is_refused",
            f"{_ENGINE}/policy/test_policy.py::TestGuard::test_a_configuration_that_weakens_it_is_refused",
            "tests/unit/operations/test_policy_check.py::test_exactly_our_pack_must_have_run",
        ),
    ),
    Fault(
        33,
        "Two stacks of this program on one cluster",
        "The second takes nothing of the first; what one destroys, the other keeps.",
        (
            f"{_STACK}/test_first_contact.py::test_a_second_stack_in_other_namespaces_takes_nothing_of_the_first",
            f"{_ONE}::test_it_keeps_to_its_cluster_and_a_second_stack_takes_nothing_of_it",
        ),
    ),
    Fault(
        34,
        "`destroy` is killed, also in the last hook of a chart; a namespace stays Terminating at a finalizer",
        "The next `destroy` waits, and ends once the finalizer is gone. After a kill in the hook, `down` goes on and "
        "`rollback` finds the rest: no webhook is left without its server.",
        (
            f"{_HERE}/test_cluster.py::test_a_destroy_that_hangs_at_a_finalizer_and_is_killed_is_ended_by_the_next",
            f"{_STACK}/test_last_hook.py::test_down_goes_on_after_a_kill_says_what_helm_waits_for_and_leaves_nothing",
            f"{_STACK}/test_last_hook.py::test_what_a_plain_destroy_left_is_found_by_rollback_once_the_state_is_empty",
        ),
    ),
    Fault(
        35,
        "pulumi, the provider or the SDK is a minor version newer than the state",
        "`preview` shows no replacement.",
        (f"{_ENGINE}/docs/test_guides.py::TestOneStack::test_another_version_of_the_program_takes_the_stack_over",),
        "another pulumi or provider, since one version of each is pinned, and building a second takes longer than all "
        "of these tests. Another version of the program is.",
    ),
    Fault(
        36,
        "Every replica of the webhook is killed in a burst of 1,000 pods",
        "No pod is lost, none comes through unchanged.",
        (
            f"{_ADMISSION}/test_burst.py::test_both_killed_in_a_burst_of_1000_pods_lose_none_and_let_none_through_unmutated",
        ),
        "500 nodes, since admission looks at none; the pods go to one. How long a pod takes is in `make bench`.",
    ),
)
"""All rows, by number."""


def named() -> list[str]:
    """Every test of the table, once, by file."""
    return sorted({test for fault in FAULTS for test in fault.tests})


def page() -> str:
    """The table of the page of recovery."""
    lines = ["| | Fault | What happens | Proved by |", "| --- | --- | --- | --- |"]
    for fault in FAULTS:
        files = sorted({f"`{test.partition('::')[0].removeprefix('tests/')}`" for test in fault.tests})
        not_here = f" Not tried: {fault.not_here}" if fault.not_here else ""
        lines.append(f"| {fault.number} | {fault.what} | {fault.expected}{not_here} | {', '.join(files)} |")
    return "\n".join(lines) + "\n"
