"""Which site is updated when, and whether a wave's results let the next one begin."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.errors import OperationError
from operations.fleet.file import FleetFile, Wave, read_fleet
from operations.fleet.order import Outcome, Step, judge, step_called, steps

SITES = ["berlin", "eu-1", "eu-2", "us-1"]
TEXT = """
canary: berlin
waves:
  - name: pilots
    sites: [eu-1]
  - name: everywhere
    sites: ["*"]
    failure_budget: 50%
    parallel: 2
"""


def _fleet(folder: Path, text: str) -> FleetFile:
    (folder / "fleet.yaml").write_text(text, encoding="utf-8")
    return read_fleet(folder)


def test_the_canary_comes_first_and_each_site_is_in_the_first_wave_that_has_it(tmp_path: Path) -> None:
    assert steps(_fleet(tmp_path, TEXT), SITES) == (
        Step("canary", ("berlin",), failure_budget=0, parallel=1),
        Step("pilots", ("eu-1",), failure_budget=0, parallel=10),
        Step("everywhere", ("eu-2", "us-1"), failure_budget=1, parallel=2),
    )


@pytest.mark.parametrize(
    ("budget", "sites", "fails"), [(0, 9, 0), (3, 9, 3), ("10%", 9, 0), ("34%", 9, 3), ("100%", 2, 2)]
)
def test_a_share_of_the_sites_is_rounded_down(budget: int | str, sites: int, fails: int) -> None:
    names = [f"s{number}" for number in range(sites)]
    wave = Wave(name="all", sites=["s*"], failure_budget=budget)
    assert steps(FleetFile(canary="c", waves=[wave]), ["c", *names])[1].failure_budget == fails


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("canary: berln", r"canary: there is no site 'berln'\. Did you mean 'berlin'\?"),
        ("canary: berlin", r'no wave has eu-1, eu-2, us-1\. .*\["\*"\]'),
        ("canary: berlin\nwaves: [{name: a, sites: [eu_1]}]", r"wave 'a': no site is 'eu_1'\. Did you mean 'eu-1'\?"),
        (
            'canary: berlin\nwaves: [{name: a, sites: ["*"]}, {name: b, sites: [eu-1]}]',
            r"wave 'b' has no site: earlier waves have all",
        ),
        ('canary: berlin\nwaves: [{name: a, sites: [eu-1]}, {name: a, sites: ["*"]}]', r"two waves have the name 'a'"),
        ('canary: berlin\nwaves: [{name: canary, sites: ["*"]}]', r"two waves have the name 'canary'"),
    ],
)
def test_a_file_that_does_not_fit_the_sites_says_what_to_write(tmp_path: Path, text: str, says: str) -> None:
    fleet = _fleet(tmp_path, text)
    with pytest.raises(OperationError, match=rf"^fleet\.yaml: .*{says}"):
        steps(fleet, SITES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("canary: 1", r"canary: Input should be a valid string \(found: 1\)"),
        ("canry: berlin", r"the file: unknown key 'canry'.*Did you mean 'canary'\?"),
        ("canary: a\nwaves: [{name: a, sites: []}]", r"waves\.0\.sites: "),
        ("canary: a\nwaves: [{name: A b, sites: [x]}]", r"waves\.0\.name: not a DNS label"),
        ("canary: a\nwaves: [{name: a, sites: [../x]}]", r"waves\.0\.sites\.0: "),
        ("canary: a\nwaves: [{name: a, sites: [x], failure_budget: 101%}]", r"waves\.0\.failure_budget: "),
        ("canary: a\nwaves: [{name: a, sites: [x], failure_budget: -1}]", r"waves\.0\.failure_budget: "),
        ("canary: a\nwaves: [{name: a, sites: [x], parallel: 0}]", r"waves\.0\.parallel: "),
        ("canary: a\noperator: {repository: /etc, backend: s3://x}", r"operator\.repository: "),
        ("canary: a\noperator: {repository: 'https://x', backend: s3://x, folder: ../x}", r"operator\.folder: "),
        ("- a", r"the file: "),
        ("", r"the file: "),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(OperationError, match=rf"(?s)^fleet\.yaml is not right\. Nothing was done\.\n.*  {says}"):
        _fleet(tmp_path, text)


@pytest.mark.parametrize("text", ["a: [", "canary: a\ncanary: b"])
def test_a_file_that_is_not_yaml_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(OperationError, match=r"^fleet\.yaml is not YAML: "):
        _fleet(tmp_path, text)


def test_without_a_file_there_is_no_order(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"There is no fleet\.yaml in .*docs/fleets\.md"):
        read_fleet(tmp_path)


def test_a_wave_is_found_by_its_name(tmp_path: Path) -> None:
    every = steps(_fleet(tmp_path, TEXT), SITES)
    assert step_called(every, "pilots").sites == ("eu-1",)
    with pytest.raises(OperationError, match=r"has no wave 'pilot'\. There are: canary, pilots, everywhere\."):
        step_called(every, "pilot")


_STEP = Step("w", ("a", "b", "c", "d"), failure_budget=1)


def test_within_its_budget_a_wave_holds() -> None:
    updated = dict.fromkeys("abc", Outcome.UPDATED)
    verdict = judge(_STEP, updated | {"d": Outcome.FAILED, "x": Outcome.FAILED})
    assert (verdict.holds, verdict.updated, verdict.failed, verdict.unknown) == (True, ("a", "b", "c"), ("d",), ())


def test_a_site_of_which_nothing_was_heard_counts_as_failed() -> None:
    verdict = judge(_STEP, dict.fromkeys("ab", Outcome.UPDATED))
    assert (verdict.holds, verdict.unknown) == (False, ("c", "d"))


def test_nothing_heard_at_all_never_lets_the_canary_pass() -> None:
    assert not judge(Step("canary", ("a",)), {}).holds


@given(st.dictionaries(st.sampled_from("abcdx"), st.sampled_from(Outcome)), st.integers(0, 4))
def test_a_wave_holds_only_where_all_but_the_budget_are_updated(outcomes: dict[str, Outcome], budget: int) -> None:
    step = Step("w", ("a", "b", "c", "d"), failure_budget=budget)
    verdict = judge(step, outcomes)
    assert verdict.holds == (len(verdict.updated) >= len(step.sites) - budget)
    assert sorted((*verdict.updated, *verdict.failed, *verdict.unknown)) == list(step.sites)


_PATTERNS = st.lists(st.sampled_from(["*", "eu-*", "eu-?", "us-1", "berlin"]), min_size=1, max_size=2)


@given(st.lists(_PATTERNS, max_size=3), st.sampled_from(SITES))
def test_every_site_is_in_exactly_one_wave(patterns: list[list[str]], canary: str) -> None:
    waves = [Wave(name=f"w{number}", sites=names) for number, names in enumerate(patterns)]
    try:
        every = steps(FleetFile(canary=canary, waves=waves), SITES)
    except OperationError:
        return
    assert sorted(site for step in every for site in step.sites) == SITES
