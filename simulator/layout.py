"""Where everything lies inside the simulator's one folder."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

STAGES = Path(__file__).parent / "stages"
"""KWOK's rules, read by kwok where they lie."""


@dataclass(frozen=True)
class Layout:
    """The paths below one simulator folder (absolute, so that a process's arguments identify its folder)."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> "Layout":
        """The layout of `folder`, which need not exist."""
        return cls(Path(os.path.expanduser(folder)).resolve())

    @property
    def lock(self) -> Path:
        """Held while one command starts or stops processes."""
        return self.folder / "lock"

    @property
    def records(self) -> Path:
        """Which processes run, see `simulator.records`."""
        return self.folder / "processes.json"

    @property
    def pki(self) -> Path:
        """Certificates and private keys."""
        return self.folder / "pki"

    @property
    def etcd(self) -> Path:
        """The data of etcd, that is: the whole cluster."""
        return self.folder / "etcd"

    @property
    def sockets(self) -> Path:
        """Where processes work, and etcd listens: nobody else enters, whoever may enter the whole folder."""
        return self.folder / "sockets"

    @property
    def etcd_socket(self) -> Path:
        """Where etcd answers."""
        return self.sockets / "etcd.sock"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.folder / "logs"

    @property
    def stages(self) -> Path:
        """KWOK's rules where some pods are processes."""
        return self.folder / "stages"

    @property
    def egress(self) -> Path:
        """The API server's way to pods that are processes."""
        return self.folder / "egress.yaml"

    @property
    def pods(self) -> Path:
        """A folder for each pod that is a process."""
        return self.folder / "pods"

    @property
    def pod_logs(self) -> Path:
        """One log for each pod that is a process."""
        return self.logs / "pods"

    @property
    def kubeconfig(self) -> Path:
        """The user's way in, as cluster administrator."""
        return self.folder / "kubeconfig"

    @property
    def home(self) -> Path:
        """What the processes see as their home folder, so that they never read or write the user's."""
        return self.folder / "home"

    def component_kubeconfig(self, component: str) -> Path:
        """The way in of a control-plane component, with its own identity."""
        return self.pki / f"{component}.kubeconfig"

    def log(self, process: str) -> Path:
        """The log of one process."""
        return self.logs / f"{process}.log"

    def delete(self) -> None:
        """Delete the simulator's data, and the folder too where nothing else lies in it."""
        for path in (self.pki, self.etcd, self.logs, self.home, self.sockets, self.stages, self.pods):
            shutil.rmtree(path, ignore_errors=True)
        for path in (self.records, self.kubeconfig, self.egress, self.lock):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
