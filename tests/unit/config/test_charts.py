"""Rules of charts and images, the same for both releases."""

import pytest

from config.charts import ChartSettings, release_line
from testbed.stacks import assert_refused, changed, parse, refusal, x86

_RELEASES = pytest.mark.parametrize("release", ["kai", "gpu_operator"])


@_RELEASES
@pytest.mark.parametrize(
    "source",
    [
        *("nvidia/gpu-operator", "http://charts.example.com", "charts", ""),
        # No chart can be had by these.
        *("oci://", "oci://site/kai:v1.0.0", "oci://site/Kai", "oci://site/kai/", "https://", "https://a b", "./a\nb"),
    ],
)
def test_a_chart_source_says_what_it_is(release: str, source: str) -> None:
    key = f"{release}.chart.source"
    assert_refused(changed(x86(), key, source), key, "not a chart source", "oci://registry/path/chart", found=source)


@_RELEASES
@pytest.mark.parametrize(
    "source",
    ["https://reader:geheim@charts.example.com/site", "https://geheim@charts.example.com", "oci://a:geheim@site/kai"],
)
def test_a_login_in_an_address_is_refused_and_not_shown(release: str, source: str) -> None:
    key = f"{release}.chart.source"
    assert_refused(changed(x86(), key, source), key, "a login in the address", "helm registry login")
    assert "geheim" not in refusal(changed(x86(), key, source))
    parse(changed(x86(), key, "https://charts.example.com/site@2"))


@_RELEASES
def test_a_local_chart_has_its_own_version(release: str) -> None:
    assert_refused(
        changed(x86(), f"{release}.chart", {"source": "./chart", "version": "v1"}),
        f"{release}.chart",
        "a local chart carries its own version in Chart.yaml: remove 'version'",
    )


@_RELEASES
@pytest.mark.parametrize("version", ["latest", "v0.18.6 ", "", "-v1", "v1\n"])
def test_a_version_is_one_that_helm_reads(release: str, version: str) -> None:
    key = f"{release}.chart.version"
    assert_refused(changed(x86(), key, version), key, "not a chart's version", found=version)


@pytest.mark.parametrize("version", ["v0.18.6", "0.18", "~0.18.0", ">=0.17, <0.19", "0.0.0-abc+1", "^1.2"])
def test_a_version_may_be_a_range(version: str) -> None:
    assert ChartSettings(version=version).version == version


@pytest.mark.parametrize(
    ("source", "local"),
    [
        (None, False),
        ("oci://registry.example.com/chart", False),
        ("https://charts.example.com", False),
        ("/srv/chart", True),
        ("./chart", True),
        ("../chart.tgz", True),
    ],
)
def test_a_chart_is_local_when_its_source_is_a_path(source: str | None, *, local: bool) -> None:
    assert ChartSettings(source=source).is_local is local


@_RELEASES
@pytest.mark.parametrize("registry", ["https://registry.example.com", "registry:tag:x", "", "a b"])
def test_a_registry_is_a_host_and_a_path(release: str, registry: str) -> None:
    key = f"{release}.images.registry"
    assert_refused(changed(x86(), key, registry), key, "should match pattern", found=registry)


@_RELEASES
@pytest.mark.parametrize("registry", ["registry.example.com", "registry:5000/a/b", "localhost:5000"])
def test_a_registry_may_have_a_port_and_a_path(release: str, registry: str) -> None:
    settings = parse(changed(x86(), f"{release}.images.registry", registry))
    assert getattr(settings, release).images.registry == registry


@_RELEASES
def test_an_unknown_pull_policy_names_the_known_ones(release: str) -> None:
    key = f"{release}.images.pull_policy"
    assert_refused(changed(x86(), key, "never"), key, "'Always', 'IfNotPresent' or 'Never'", found="never")


@_RELEASES
def test_a_pull_secret_is_a_secrets_name(release: str) -> None:
    stack = changed(x86(), f"{release}.images.pull_secrets", ["site", "Team"])
    assert_refused(stack, f"{release}.images.pull_secrets.1", "not a DNS label", found="Team")


def test_a_toolkit_environment_is_upper_case_names_and_strings() -> None:
    stack = changed(x86(), "gpu_operator.toolkit_env", {"lower": "1"})
    assert_refused(stack, "gpu_operator.toolkit_env.lower", "should match pattern", found="lower")
    stack = changed(x86(), "gpu_operator.toolkit_env", {"DEBUG": True})
    assert_refused(stack, "gpu_operator.toolkit_env.DEBUG", "put it in quotes", found=True)


def test_unknown_words_of_the_operator_name_the_known_ones() -> None:
    key = "gpu_operator.mig_strategy"
    assert_refused(changed(x86(), key, "all"), key, "'none', 'single' or 'mixed'", found="all")
    key = "gpu_operator.device_id_strategy"
    assert_refused(changed(x86(), key, "name"), key, "'uuid' or 'index'", found="name")


@pytest.mark.parametrize("said", ["false", "0", "F", ""])
def test_a_toolkit_that_would_ignore_fractions_is_refused(said: str) -> None:
    name = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
    stack = changed(x86(), "gpu_operator.toolkit_env", {name: said})
    assert_refused(stack, "gpu_operator.toolkit_env", "would start without it", "pod-guard=enforce")
    for harmless in ({name: "true"}, {"ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS": "false"}):
        parse(changed(x86(), "gpu_operator.toolkit_env", harmless))


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("v0.18.6", (0, 18)),
        ("0.17.0", (0, 17)),
        ("v26.7.0", (26, 7)),
        ("v0.19.0-rc1", (0, 19)),
        ("0.18.6+site", (0, 18)),
        (None, None),
        ("~0.18.0", None),
        ("0.18", None),
        ("0.18.x", None),
        ("0.0.0-41a22cd", None),
    ],
)
def test_a_release_line_is_known_of_one_release_alone(version: str | None, line: tuple[int, int] | None) -> None:
    assert release_line(version) == line


@pytest.mark.parametrize(
    "registry",
    ["r.example.com/a b", 'r.example.com/"a"', "r.example.com/A", "r.example.com:port", "r\u0007", "r/\u00e4"],
)
def test_a_registry_is_what_stands_before_an_images_name(registry: str) -> None:
    key = "kai.images.registry"
    assert_refused(changed(x86(), key, registry), key, "should match pattern", found=registry)


@pytest.mark.parametrize("section", ["kai.images", "gpu_operator.images", "admission", "monitoring"])
def test_a_pull_secret_is_named_once(section: str) -> None:
    key = f"{section}.pull_secrets"
    assert_refused(changed(x86(), key, ["site", "team", "site"]), key, "'site' is listed twice", "remove one")


def test_an_image_tag_is_one() -> None:
    assert_refused(changed(x86(), "kai.image_tag", "v1 2"), "kai.image_tag", "should match pattern", found="v1 2")


@pytest.mark.parametrize(
    "key",
    [
        *(f"{release}.{key}" for release in ("kai", "gpu_operator") for key in ("namespace", "images.registry")),
        "kai.image_tag",
    ],
)
@pytest.mark.parametrize("text", ["0", "017", "1e3", "1e-3", "0x1f", "0b1", "0o7", "y", "no", "off", "true", "null"])
def test_what_a_chart_writes_without_quotes_is_text_to_yaml(key: str, text: str) -> None:
    assert_refused(changed(x86(), key, text), key, "without quotes", "Choose another one", found=text)


@_RELEASES
def test_a_pull_secret_of_a_chart_is_text_to_yaml(release: str) -> None:
    key = f"{release}.images.pull_secrets"
    assert_refused(changed(x86(), key, ["site", "7"]), f"{key}.1", "without quotes", found="7")
    # We write this one ourselves, as JSON.
    assert parse(changed(x86(), "monitoring.pull_secrets", ["7"])).monitoring.pull_secrets == ("7",)


@pytest.mark.parametrize("tag", ["1.35", "1_000", "20260101", "TRUE"])
def test_an_image_tag_is_no_number(tag: str) -> None:
    assert_refused(changed(x86(), "kai.image_tag", tag), "kai.image_tag", "without quotes", found=tag)


@pytest.mark.parametrize("text", ["v1", "1-2", "1a", "0xg", "1e", "2026-01-01", "nobody", "yes-1", "nul", "a"])
def test_what_only_looks_like_a_number_or_a_word_of_yaml_is_a_name(text: str) -> None:
    stack = changed(changed(x86(), "kai.namespace", text), "kai.image_tag", text)
    assert (parse(stack).kai.namespace, parse(stack).kai.image_tag) == (text, text)


@pytest.mark.parametrize("digits", ["\u0661.36", "1.\u0663\u0666"])
def test_other_digits_are_no_version_of_kubernetes(digits: str) -> None:
    key = "cluster.kubernetes_version"
    assert_refused(changed(x86(), key, digits), key, "not a Kubernetes version", found=digits)
