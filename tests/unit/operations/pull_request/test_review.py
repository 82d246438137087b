"""What the previews keep to themselves."""

from operations.pull_request.review import secrets_of


def test_the_secrets_of_the_environment_are_known() -> None:
    environment = {"GITHUB_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k", "HOME": "/root", "MINE": "m"}
    assert set(secrets_of(environment, ["MINE", "NONE"])) == {"t", "k", "m"}
