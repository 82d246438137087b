"""The comment: what it says, its bounds, and that texts of others stay texts."""

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from operations.engine_events import Record
from operations.pull_request.comment import LIMIT_BYTES, Occasion, drift_issue, marker, preview_comment
from operations.redaction import HIDDEN, Redactor
from tests.unit.operations.pull_request.logs import diagnostic, finding, record, step, summary

OCCASION = Occasion(stack="jetson", status=0, commit="0123abc", log_url="https://github.com/o/r/actions/runs/1")
UPDATE = step("update", "web", old={"spec": {"replicas": 1}}, new={"spec": {"replicas": 2}})


def _comment(*events: Mapping[str, Any], status: int = 0, secrets: tuple[str, ...] = ()) -> str:
    return preview_comment(record(*events), Occasion("jetson", status), Redactor(secrets))


def test_it_begins_with_the_marker_by_which_it_is_found_again() -> None:
    assert _comment(summary()).splitlines()[0] == marker("preview", "jetson")
    assert marker("preview", "jetson") != marker("preview", "x86") != marker("drift", "x86")


def test_it_says_what_would_happen_with_the_dangerous_first() -> None:
    text = _comment(summary(create=2, delete=1, replace=1, update=3, same=30))
    assert "**1 to be deleted**, **1 to be replaced**, 2 to be created, 3 to be updated" in text
    assert "30" not in text


def test_it_shows_changed_values_as_a_diff() -> None:
    text = _comment(UPDATE, summary(update=1))
    assert "- `update` `kubernetes:apps/v1:Deployment` `web`" in text
    assert "```diff\n- spec.replicas: 1\n+ spec.replicas: 2\n```" in text


def test_nothing_to_change_is_said() -> None:
    assert "Preview of `jetson`: nothing changes" in _comment(summary(same=31))


def test_findings_are_shown_when_the_preview_failed() -> None:
    text = _comment(
        finding("privileged: true\nremove it"), finding("hm", level="advisory"), summary(create=1), status=1
    )
    assert "**1 policy finding must be solved before this can be deployed.**" in text
    assert "- **blocks**: `privilege` on `web`" in text
    assert "  privileged: true\n  remove it" in text
    assert "- advises: `privilege`" in text


def test_a_failed_preview_shows_its_errors_and_says_that_it_is_incomplete() -> None:
    text = _comment(diagnostic("the cluster does not answer"), status=1)
    assert "**The preview failed.**" in text
    assert "**The engine did not come to its end: what stands here is incomplete.**" in text
    assert "```\nthe cluster does not answer\n```" in text
    assert "no plan" in text
    assert "nothing changes" not in text


def test_a_preview_without_the_policy_pack_says_so() -> None:
    without = summary(create=1)
    without["summaryEvent"]["PolicyPacks"] = {}
    assert "**No policy pack ran: nothing here was judged.**" in _comment(without)
    assert "No policy pack ran" not in _comment(summary(create=1))


def test_it_names_commit_log_and_pack() -> None:
    text = preview_comment(record(summary()), OCCASION, Redactor())
    assert "policy pack `kai-anywhere v0.1.0`; commit `0123abc`; [log](https://github.com/o/r/actions/runs/1)" in text


def test_secrets_are_hidden_in_every_part() -> None:
    text = _comment(
        diagnostic("error hunter2"),
        diagnostic("warning hunter2", severity="warning"),
        finding("finding hunter2", name="hunter2"),
        step("update", "hunter2", old={"a": "hunter2", "b": {"hunter2": 1}}, new={"a": "x"}),
        summary(update=1),
        secrets=("hunter2",),
    )
    assert "hunter2" not in text
    assert text.count(HIDDEN) >= 7


def test_a_drift_issue_tells_what_was_changed_outside_of_pulumi() -> None:
    detailed = {"spec.replicas": {"diffKind": "update"}}
    changed = step(
        "refresh", "web", old={"spec": {"replicas": 1}}, new={"spec": {"replicas": 9}}, detailed=detailed, after=True
    )
    read = record(changed, step("refresh", "gone", old={}, after=True), summary(update=1))
    text = drift_issue(read, OCCASION, Redactor())
    assert text.startswith(f"{marker('drift', 'jetson')}\n### `jetson`: 2 resources changed outside of Pulumi\n")
    assert "- spec.replicas: 1\n+ spec.replicas: 9" in text
    assert "- `delete` `kubernetes:apps/v1:Deployment` `gone`" in text
    assert "1 deleted, 1 updated\n" in text
    assert "to be" not in text, "it has happened"
    assert "`pulumi up --refresh` makes it so again" in text, "without a look at the cluster, up finds nothing to do"


def test_what_was_merged_and_not_deployed_yet_is_nobodys_change_on_the_cluster() -> None:
    text = drift_issue(record(UPDATE, summary(update=1)), OCCASION, Redactor())
    assert text.startswith(f"{marker('drift', 'jetson')}\n### `jetson`: not deployed\n\nNo change was found outside")
    assert "`pulumi up --refresh` does what stands below" in text
    assert "- spec.replicas: 1\n+ spec.replicas: 2" in text
    assert "if the change was meant" not in text, "the stack file says it already"


@pytest.mark.parametrize("render", [preview_comment, drift_issue])
def test_a_stack_is_named_with_its_folder(render: Callable[[Record, Occasion, Redactor], str]) -> None:
    text = render(record(summary()), replace(OCCASION, folder="clusters/lab"), Redactor())
    assert "clusters/lab/jetson -->" in text.splitlines()[0]
    assert "`clusters/lab/jetson`" in text.splitlines()[1]


def test_a_check_that_failed_claims_no_drift() -> None:
    text = drift_issue(record(diagnostic("the cluster is not ready"), summary()), OCCASION, Redactor())
    assert text.startswith(f"{marker('drift', 'jetson')}\n### `jetson`: the check failed\n")
    assert "the cluster is not ready" in text
    assert "not as the program says" not in text


def test_what_does_not_fit_is_counted() -> None:
    text = _comment(*(finding(f"{number} " + "x" * 1400) for number in range(100)), summary(create=1), status=1)
    shown = text.count("- **blocks**")
    assert 5 < shown < 100
    assert f"_{100 - shown} more are in the log of the run._" in text
    assert "**100 policy findings must be solved" in text


def test_many_errors_do_not_crowd_out_the_findings() -> None:
    events = [diagnostic(f"{number} " + "x" * 4000) for number in range(50)]
    assert "- **blocks**" in _comment(*events, finding("no"), summary(create=1), status=1)


ATTACKS = (
    "</code></summary></details><script>alert(1)</script>",
    "```\n</details>\n# Approved by @admin",
    "`` ` ``` ````",
    "[click](javascript:alert(1)) ![x](https://example.com/x.png) @everyone #1",
    "<!-- kai-anywhere:preview:x86 -->",
    "a\n\n---\n| a | b |\n|---|---|\n",
    "\\`not escaped\\",
    "\u202eesrever\u202c \u200b\u2066 \x1b[31m",
    "&lt;script&gt; &#60;b&#62;",
    "~~~\n<b>\n~~~",
    "    indented",
    " ",
    "",
)


def _events(text: str) -> Record:
    return record(
        diagnostic(text),
        diagnostic(text, severity="warning"),
        finding(text, name=text),
        step("update", text, type_=text, old={text: text, "a": [text]}, new={text: 1, "b": {text: text}}),
        step("create", text, new={text: text}),
        step(text, text),
        summary(create=1),
    )


def _tokens(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _tokens(token.children or [])


@pytest.mark.parametrize("text", ATTACKS)
def test_texts_of_others_stay_texts(text: str) -> None:
    assert_only_ours(preview_comment(_events(text), Occasion("jetson", 1, text), Redactor()), text)


@settings(deadline=None, max_examples=150)
@given(st.one_of(st.text(alphabet="`~<>&|\\[]()!@#*_-+ \n\tab", max_size=200), st.text(max_size=200)))
@example("`" * 3000)
def test_no_text_breaks_out_of_its_code_or_of_the_bound(text: str) -> None:
    for render in (preview_comment, drift_issue):
        rendered, harmless = (
            render(_events(text_of_event), Occasion("jetson", 1), Redactor()) for text_of_event in (text, "x")
        )
        assert len(rendered.encode()) <= LIMIT_BYTES
        assert_only_ours(rendered, text, harmless)


@pytest.mark.parametrize("text", ["x", "`", "\u20ac", "\U0001f600", "&", "\n"])
# Few long ones and many short ones, below the limit and far beyond.
@pytest.mark.parametrize(("length", "count"), [(1, 1), (70_000, 1), (1, 400), (300, 40), (5000, 40), (300, 400)])
def test_the_comment_is_never_too_long_for_github(text: str, length: int, count: int) -> None:
    long = text * length
    events = [diagnostic(f"{n}{long}") for n in range(3)] + [finding(f"{n}{long}") for n in range(count)]
    events += [step("update", f"{n}{long[:200]}", old={"a": long}, new={"a": n}) for n in range(count)]
    rendered = preview_comment(record(*events, summary(update=count)), Occasion("jetson", 1), Redactor())
    assert len(rendered.encode()) <= LIMIT_BYTES
    assert rendered.count("```") % 2 == 0 or "````" in rendered
    assert rendered.count("<details>") == rendered.count("</details>")


def assert_only_ours(rendered: str, text: str, harmless: str = "") -> None:
    """Outside of code, the parsed text has our own words, one kind of link, and no HTML but ours.

    Args:
        rendered: the comment.
        text: what others wrote into it.
        harmless: the same comment with a text of no meaning: hypothesis tries words of our own too.
    """
    for token in _tokens(MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(rendered)):
        assert token.type not in {"html_inline", "image", "table_open", "hr", "code_block"}, token
        if token.type == "html_block":
            _assert_own_html(token.content)
        if token.type == "heading_open":
            assert token.tag in {"h3", "h4"}
        if (
            token.type == "text" and len(text) > 8 and text not in harmless
        ):  # shorter ones can be a part of our own words by chance
            assert text not in token.content
        if token.type == "link_open":
            assert str(token.attrs["href"]).startswith("https://github.com/")
    for character in rendered:
        assert character == "\n" or character.isprintable() or character == " ", repr(character)


def _assert_own_html(content: str) -> None:
    content = content.strip()
    if content in {"</details>", marker("preview", "jetson"), marker("drift", "jetson")}:
        return
    if content.startswith("<!-- kai-anywhere:preview:"):
        raise AssertionError(content)
    start, end = "<details><summary><code>", "</code></summary>"
    assert content.startswith(start), content
    assert content.endswith(end), content
    inner = content.removeprefix(start).removesuffix(end)
    assert html.escape(html.unescape(inner)) == inner
