"""Nothing secret gets into a comment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.redaction import HIDDEN, Redactor

MARKED = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "aGlkZGVu"}
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"


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
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_any_text(text: str) -> None:
    shown = Redactor().text(f"before {text} after")
    assert text not in shown
    assert shown.startswith(f"before {HIDDEN}")


def test_a_password_in_an_address_is_hidden_and_the_address_stays() -> None:
    assert Redactor().text("at https://me:pw@example.com/x") == f"at https://{HIDDEN}@example.com/x"
    assert Redactor().text("at https://example.com:6443/x") == "at https://example.com:6443/x"


@given(st.text(min_size=4, max_size=30), st.text(), st.text())
def test_a_known_secret_is_never_shown(secret: str, before: str, after: str) -> None:
    shown = Redactor([secret]).text(before + secret + after)
    # What is around may by chance make up the secret anew, together with the word that stands for it.
    assert secret not in shown.replace(HIDDEN, "\0") or secret in before + after


def test_the_longer_of_two_known_secrets_leaves_no_rest() -> None:
    assert Redactor(["abcd", "abcdefgh"]).text("x abcdefgh y") == f"x {HIDDEN} y"


def test_a_secret_of_three_characters_would_be_found_everywhere() -> None:
    assert Redactor(["a", "", "abc"]).text("abc") == "abc"
