"""The steps before anything is registered: what the stack's file says."""

import pulumi
import pytest

from components.installation import settings_of_file
from config.stack import StackConfigError
from tests.support import recording_monitor
from tests.support.recording_monitor import record


def test_a_project_of_another_name_than_its_settings_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_monitor, "PROJECT", "gpu-platform")

    def program() -> None:
        pulumi.runtime.set_all_config({"kai-anywhere:settings": "{}"})
        with pytest.raises(StackConfigError) as caught:
            settings_of_file("Pulumi.prod.yaml")
        assert "has kai-anywhere:settings, and the project is called 'gpu-platform' in Pulumi.yaml" in str(caught.value)
        assert "write `name: kai-anywhere` there" in str(caught.value)
        assert settings_of_file("Pulumi.prod.yaml", "kai-anywhere") == ("{}", None), "as the component reads it"
        pulumi.runtime.set_all_config({"gpu-platform:settings": "{}"})
        assert settings_of_file("Pulumi.prod.yaml") == ("{}", None)

    record(program)
