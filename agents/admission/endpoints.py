"""Where what pods may choose answers: a mounted file that comes and changes while the server runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from agents.admission import files
from agents.admission.errors import SettingsError

_Endpoint = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+:[1-9][0-9]{0,4}$")]


@dataclass
class EndpointsFile:
    """The mounted file, read again when it changes; the kubelet replaces it when the ConfigMap changes."""

    path: Path
    _seen: tuple[int, int] | None = None
    _endpoints: Mapping[str, str] = field(default_factory=dict)

    def current(self) -> Mapping[str, str]:
        """Host and port by name as of now; none while there is no file.

        Raises:
            SettingsError: the file is wrong.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SettingsError(f"{self.path}: can't be read: {error.strerror}") from None
        seen = status.st_ino, status.st_mtime_ns
        if seen != self._seen:
            self._endpoints = files.read(self.path, dict[str, _Endpoint])
            self._seen = seen
        return self._endpoints
