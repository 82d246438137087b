"""Nothing secret gets into a comment."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.bundle.clean import Cleaner
from operations.redaction import HIDDEN, Redactor, environment_secrets

MARKED = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "aGlkZGVu"}
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"
LOGIN = base64.b64encode(b"user:password").decode()


def test_what_pulumi_marks_is_hidden_wherever_it_stands() -> None:
    shown = Redactor().inputs("x:y:Z", {"a": MARKED, "b": [{"c": MARKED}], "d": 1})
    assert shown == {"a": HIDDEN, "b": [{"c": HIDDEN}], "d": 1}


def test_a_secret_is_hidden_as_a_name_too() -> None:
    assert Redactor(["hunter2"]).inputs("x:y:Z", {"hunter2": {"hunter2": 1}}) == {HIDDEN: {HIDDEN: 1}}


@pytest.mark.parametrize("kind", ["Secret", "SecretPatch"])
def test_a_kubernetes_secret_shows_its_name_alone(kind: str) -> None:
    values = {"metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "x"}, "type": "Opaque"}
    assert Redactor().inputs(f"kubernetes:core/v1:{kind}", values) == {
        "metadata": {"name": "s"},
        "data": HIDDEN,
        "stringData": HIDDEN,
        "type": "Opaque",
    }


def test_the_data_of_a_config_map_is_shown() -> None:
    values = {"data": {"a": "x"}}
    assert Redactor().inputs("kubernetes:core/v1:ConfigMap", values) == values


def test_a_value_is_hidden_by_its_name_but_a_reference_is_not() -> None:
    values = {
        "password": "x",
        "apiToken": "y",
        "private_key": "z",
        "secretName": "s",
        "imagePullSecrets": [{"name": "n"}],
    }
    assert Redactor().inputs("x:y:Z", values) == values | dict.fromkeys(("password", "apiToken", "private_key"), HIDDEN)


def test_an_environment_variable_is_hidden_by_the_name_beside_it() -> None:
    env = {"env": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "LEVEL", "value": "4"}]}
    shown = Redactor().inputs("x:y:Z", env)
    assert shown == {"env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "LEVEL", "value": "4"}]}


def test_a_flag_that_is_only_named_like_a_secret_is_shown() -> None:
    values = {"automountServiceAccountToken": False}
    assert Redactor().inputs("x:y:Z", values) == values


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        KEY[:40],
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a" * 36,
        "github_pat_" + "b" * 40,
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2ln",
        "bearer-eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2ln",
        "nvapi-" + "aB3-_" * 12,
        "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
        "glpat-" + "a1B2c3D4e5F6g7H8i9J0.01.121abcdef",
        "pul-" + "0123456789" * 4,
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_any_text(text: str) -> None:
    shown = Redactor().text(f"before {text} after")
    assert text not in shown
    assert shown.startswith(f"before {HIDDEN}")


@pytest.mark.parametrize(
    "login",
    [
        "me:pw",
        ":pw",
        "me:",
        "glpat-x",
        "me:p@ss",
        "p@ss",
        "me:p:w?#\"'",
        # What looks like a token by itself must not hide what comes after it.
        "ghp_" + "a" * 36 + ":rest",
    ],
)
def test_a_login_in_an_address_is_hidden_and_the_address_stays(login: str) -> None:
    assert Redactor().text(f"at https://{login}@example.com/x") == f"at https://{HIDDEN}@example.com/x"


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com:6443/x",
        "git@github.com:team/clusters.git and ssh://git@github.com/team/clusters.git",
        "https://example.com/@scope/package",
        "oci://registry.example.com:5000/kai@sha256:0011",
        "docker-pullable://nginx@sha256:0011",
        '{"a":"https://example.com","mail":"me@example.com"}',
        "https://example.com (me@example.com)",
    ],
)
def test_an_address_without_a_login_is_shown(text: str) -> None:
    assert Redactor().text(text) == text


def test_the_password_of_an_ssh_user_is_hidden() -> None:
    assert Redactor().text("ssh://git:pw@example.com") == f"ssh://{HIDDEN}@example.com"


@pytest.mark.parametrize(
    "name",
    [*("SECRET_KEY", "MINIO_SECRET_KEY", "secretKey", "secret-key", "AWS_SECRET_ACCESS_KEY"), "client-key-data"],
)
def test_a_name_of_a_secret_hides_its_value_in_comments_and_bundles(name: str) -> None:
    env = {"env": [{"name": name, "value": "s3cr3t-value"}], name: "s3cr3t-value"}
    shown = {"env": [{"name": name, "value": HIDDEN}], name: HIDDEN}
    assert Redactor().inputs("x:y:Z", env) == shown
    assert Cleaner().text(f"{name}=s3cr3t-value {name}: s3cr3t-value") == f"{name}={HIDDEN} {name}: {HIDDEN}"


def test_what_only_begins_like_a_name_of_a_secret_is_shown() -> None:
    values = {
        "secretKeyRef": {"name": "n", "key": "k"},
        "secretName": "s",
        "imagePullSecrets": [{"name": "n"}],
        "authorization": "x",
        "authorizationMode": "Node,RBAC",
        "auth": "required",
        "authentication": LOGIN,
        "client-certificate-data": "LS0tLS1CRUdJTg==",
    }
    assert Redactor().inputs("x:y:Z", values) == values
    assert Cleaner().component(values) == values
    text = "secretKeyRef: a, secretName: b, imagePullSecrets: c, authorizationMode: d, --authorization-mode=Node"
    assert Redactor().text(text) == text
    assert Cleaner().text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--registry-password=x", "--registry-password=[secret]"),
        ("--token abc --v=4", "--token [secret] --v=4"),
        ('--password "two words" x', '--password "[secret]" x'),
        ("docker login -u me -p hunter && ls", "docker login -u me -p [secret] && ls"),
        ("PGPASSWORD=a;b,c psql", "PGPASSWORD=[secret] psql"),
        ("DB_PASSWORD='a b c' x", "DB_PASSWORD='[secret]' x"),
        (r'{"token":"a\"b"}', '{"token":"[secret]"}'),
        (r'"{\"password\":\"x\"}"', r'"{\"password\":\"[secret]\"}"'),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer [secret]"),
    ],
)
def test_a_secret_inside_of_an_argument_or_a_text_is_hidden_in_comments_and_bundles(text: str, shown: str) -> None:
    assert Redactor().inputs("x:y:Z", {"args": [text]}) == {"args": [shown]}
    assert Cleaner().component({"args": [text]}) == {"args": [shown]}
    assert Redactor().text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "urn:pulumi:jetson::kai::kubernetes:core/v1:Secret::kai-1",
        'kubernetes:core/v1:Secret (kai-1): Secret kai-1, secret "kai-2" not found',
        'constructing secrets manager of type "passphrase": unable to find it',
        "sudo_password_secret: jetson-sudo",
        "automountServiceAccountToken: false",
        "pulumi config set --secret jetson-sudo",
        "basic authentication, mkdir -p /a",
    ],
)
def test_what_only_sounds_like_a_secret_is_shown_in_comments_and_bundles(text: str) -> None:
    assert Redactor().text(text) == text
    assert Cleaner().text(text) == text


def test_a_secret_that_is_an_option_s_next_argument_is_hidden() -> None:
    values = {"args": ["--token", "abc", "--v", "4"], "command": ["docker", "login", "-u", "me", "-p", "pw"]}
    shown = {"args": ["--token", HIDDEN, "--v", "4"], "command": ["docker", "login", "-u", "me", "-p", HIDDEN]}
    assert Redactor().inputs("x:y:Z", values) == shown
    paths = {"args": ["--token", "--v", "-p", "8080"]}
    assert Redactor().inputs("x:y:Z", paths) == paths


def test_a_number_is_hidden_by_its_name() -> None:
    assert Redactor().inputs("x:y:Z", {"adminPassword": 123456}) == {"adminPassword": HIDDEN}


def test_kubectls_copy_of_a_secret_is_hidden() -> None:
    name = "kubectl.kubernetes.io/last-applied-configuration"
    values = {"metadata": {"annotations": {name: '{"kind":"Secret","data":{"tls.key":"LS0tLS1CRUdJTg=="}}'}}}
    assert Redactor().inputs("kubernetes:core/v1:Secret", values) == {"metadata": {"annotations": {name: HIDDEN}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"auths": {"registry.example.com": {"auth": "', '"}}}'),
        (r'"{\"auths\":{\"registry.example.com\":{\"auth\":\"', r'\"}}}"'),
        ("client-key-data: ", "\n"),
        ('{"client-key-data": "', '"}'),
    ],
)
def test_what_a_configuration_says_as_text_is_hidden_by_its_name(before: str, after: str) -> None:
    for secret in (LOGIN, LOGIN.rstrip("=")):
        for shown in (Redactor().text(before + secret + after), Cleaner().text(before + secret + after)):
            assert shown == before + HIDDEN + after


def test_a_login_of_a_registry_is_hidden_as_a_value_too() -> None:
    assert Redactor().inputs("x:y:Z", {"auth": LOGIN}) == {"auth": HIDDEN}


def test_comments_and_bundles_know_the_same_secrets_of_the_environment() -> None:
    environment = {
        "PULUMI_CONFIG_PASSPHRASE": "a",
        "PULUMI_ACCESS_TOKEN": "b",
        "AWS_SECRET_ACCESS_KEY": "c",
        "AWS_SESSION_TOKEN": "d",
        "GITHUB_TOKEN": "e",
        "MINE": "f",
        "EMPTY": "",
        "HOME": "/root",
        "KAI_ANYWHERE_SECRET_VARIABLES": "MINE, EMPTY,NONE,",
    }
    assert environment_secrets(environment) == set("abcdef")


@pytest.mark.parametrize(
    "part",
    [
        *("://", "://a:", "://a@:", "glpat-", "nvapi-", "pul-", '"auth"', '"auth":"', "client-key-data", "\\", ": "),
        *("token", "token-", "token ", "token=", "token:)", "token\\", 'token="', "--token ", "login "),
        *("bearer ", "-p "),
    ],
)
def test_a_hostile_text_is_read_once(part: str) -> None:
    """Read from each of its places to its end, this would take hours."""
    text = part * (1_000_000 // len(part))
    assert Redactor().text(f"{text}\n{KEY}").endswith(f"\n{HIDDEN}")


@given(st.text(min_size=4, max_size=30), st.text(), st.text())
def test_a_known_secret_is_never_shown(secret: str, before: str, after: str) -> None:
    shown = Redactor([secret]).text(before + secret + after)
    # What is around may by chance make up the secret anew, together with the word that stands for it.
    assert secret not in shown.replace(HIDDEN, "\0") or secret in before + after


def test_the_longer_of_two_known_secrets_leaves_no_rest() -> None:
    assert Redactor(["abcd", "abcdefgh"]).text("x abcdefgh y") == f"x {HIDDEN} y"


def test_a_secret_of_three_characters_would_be_found_everywhere() -> None:
    assert Redactor(["a", "", "abc"]).text("abc") == "abc"
