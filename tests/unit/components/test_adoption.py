"""What the hooks of the component above everything hold on to."""

import gc
from unittest.mock import Mock

import pytest

from cluster.access.client import Cluster
from components.adoption import one_connection
from testbed.stacks import parse, x86


def test_all_objects_are_asked_about_over_one_connection_which_is_closed_with_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Mock()
    monkeypatch.setattr(Cluster, "connect", connect := Mock(return_value=opened))
    connection = one_connection(parse(x86()).cluster)
    assert connection() is connection() is opened
    connect.assert_called_once()
    opened.close.assert_not_called()
    del connection
    gc.collect()
    opened.close.assert_called_once()
