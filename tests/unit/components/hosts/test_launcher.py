"""The launcher as it runs on a host: real `sh`, with the programs that a login finds on its PATH."""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from components.hosts.commands import HostAgent, HostCommands
from config.hosts import HostSettings
from testbed.hosts.machines import sudo
from testbed.stacks import ROOT

_PASSWORD = "correct horse; battery $staple 'quoted' \\n"
_AGENT = """import sys
command = sys.argv[1]
heard = sys.stdin.read().strip()
open("heard", "a").write(heard)
print(command, sys.argv[2:], heard)
usual = 3 if command == "untouched" else 0
sys.exit(int(open("status-" + command).read()) if __import__("os").path.exists("status-" + command) else usual)
"""
_TOOLS = ("sh", "true", "cat", "timeout", "sha256sum", "id", "rm", "rmdir", "test", "tee")
_SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
_LOGIN_SHELLS = [shell for shell in ("sh", "tcsh", "fish", "zsh") if shutil.which(shell)]


@dataclass(frozen=True)
class Login:
    """A login's home with the programs that it finds."""

    home: Path
    programs: Path
    commands: HostCommands

    def run(self, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as sshd does."""
        return subprocess.run(
            [self.programs / "sh", "-c", command],
            cwd=self.home,
            env={"PATH": str(self.programs)},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @property
    def heard(self) -> str:
        """What the agent read from stdin so far."""
        heard = self.home / "heard"
        return heard.read_text(encoding="utf-8") if heard.exists() else ""

    def program(self, name: str, text: str) -> None:
        """Give the login a program, instead of the one that it has."""
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('sh')}\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def is_no_administrator(self, *, password: str | None) -> None:
        """Make the login one that sudo asks for a password, or that it refuses."""
        self.program("id", "echo 1000")
        refuse = "echo 'sudo: a password is required' >&2; exit 1"
        self.program("sudo", refuse if password is None else sudo(self.home, password))


@pytest.fixture(params=_SHELLS)
def login(tmp_path: Path, request: pytest.FixtureRequest) -> Login:
    """A login with root's rights, an agent that tells how it was called, and nothing else on PATH."""
    home, programs = tmp_path / "home", tmp_path / "programs"
    home.mkdir()
    programs.mkdir()
    for name in _TOOLS:
        program = shutil.which(str(request.param) if name == "sh" else name)
        assert program is not None
        (programs / name).symlink_to(program)
    login = Login(home, programs, _commands(home))
    login.program("python3", f'exec {sys.executable} "$@"')
    login.program("id", "echo 0")
    return login


def _commands(home: Path) -> HostCommands:
    launcher = (ROOT / "components" / "hosts" / "launcher.sh").read_bytes()
    scratch = home / "scratch.zip"
    _zip(scratch)
    content = launcher + scratch.read_bytes()
    scratch.unlink()
    settings = HostSettings.model_validate(
        {"ssh": _SSH, "sudo_password_secret": "sudo", "timeouts": {"restart_seconds": 10, "configure_seconds": 30}}
    )
    commands = HostCommands(
        "jetson-1", "kai-anywhere/rack-1", HostAgent("", hashlib.sha256(content).hexdigest()), settings
    )
    agent = home / commands.remote_agent
    agent.parent.mkdir(parents=True)
    agent.write_bytes(content)
    return commands


def _zip(path: Path) -> None:
    import zipfile  # noqa: PLC0415 - of this one test double

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", _AGENT)


_SSH = {
    "address": "192.0.2.21",
    "user": "ubuntu",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlFmcklCxzuuKgauv/SV1Xb/Di/+2Y4hmFkoW6xI8tk",
    "private_key_secret": "lab-key",
}


def test_the_probe_does_not_get_the_password(login: Login) -> None:
    done = login.run(login.commands.probe, f"{_PASSWORD}\n")
    assert (done.returncode, done.stdout) == (0, "probe ['--timeout', '60'] \n")
    assert not login.heard


def test_the_probe_is_told_the_folders_of_the_stack_whatever_is_in_their_names(login: Login) -> None:
    commands = replace(login.commands, library_folders=("/opt/a b", "/opt/it's; echo $HOME"))
    done = login.run(commands.probe)
    words = ["--libraries", "/opt/a b", "--libraries", "/opt/it's; echo $HOME", "--timeout", "60"]
    assert (done.returncode, done.stdout) == (0, f"probe {words} \n")


def test_the_probe_needs_neither_sudo_nor_stdin(login: Login) -> None:
    login.is_no_administrator(password=None)
    done = login.run(login.commands.probe)
    assert (done.returncode, done.stdout) == (0, "probe ['--timeout', '60'] \n")


def test_root_needs_no_sudo_and_the_password_stays_out_of_the_document(login: Login) -> None:
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (0, "configure ['--stack', 'kai-anywhere/rack-1', '--timeout', '30'] {}\n")


def test_the_password_reaches_sudo_and_nobody_else(login: Login) -> None:
    login.is_no_administrator(password=_PASSWORD)
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (0, "configure ['--stack', 'kai-anywhere/rack-1', '--timeout', '30'] {}\n")
    assert _PASSWORD not in done.stdout + done.stderr


def test_a_sudo_that_remembers_the_password_does_not_hand_it_to_the_agent(login: Login) -> None:
    login.is_no_administrator(password=_PASSWORD)
    for command in (login.commands.configure, login.commands.check("1"), login.commands.restore):
        assert login.run(command, f"{_PASSWORD}\n{{}}\n").returncode == 0
        assert (login.home / "sudo-remembers").exists()
    # The two of `configure`, then `check`; `restore` reads none.
    assert (login.home / "heard").read_text() == "{}{}{}"


def test_a_sudo_that_asks_nothing_gets_no_password(login: Login) -> None:
    login.is_no_administrator(password=_PASSWORD)
    (login.home / "sudo-without-password").touch()
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (0, "configure ['--stack', 'kai-anywhere/rack-1', '--timeout', '30'] {}\n")


def test_a_wrong_password_is_sudos_own_error_and_the_document_is_no_second_try(login: Login) -> None:
    login.is_no_administrator(password="{}")
    for command in (login.commands.configure, login.commands.check("1"), login.commands.restore):
        done = login.run(command, f"{_PASSWORD}\n{{}}\n")
        assert (done.returncode, done.stdout) == (1, "")
        assert "sudo: 1 incorrect password attempt" in done.stderr
        assert "host jetson-1: sudo refuses the password that hosts.jetson-1.sudo_password_secret names" in done.stderr
        assert (
            "Store the right one, then run\npulumi up: pulumi destroy uses what the last pulumi up did." in done.stderr
        )
    assert not login.heard


def test_a_wrong_password_is_told_in_sudo_rs_words_too(login: Login) -> None:
    """In those of 0.2.15, which reads no second line."""
    login.is_no_administrator(password=None)
    said = "sudo: Authentication failed, try again.\nsudo: Authentication required but not attempted"
    asks = '[ "$2" = -n ] && echo "sudo: interactive authentication is required" >&2 && exit 1'
    login.program("sudo", f"{asks}\ncat <<END >&2\n{said}\nEND\nexit 1")
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{said}\nhost jetson-1: sudo refuses the password that hosts.jetson-1.sudo_password")
    settings = login.commands.host.model_copy(update={"sudo_password_secret": None})
    done = login.run(replace(login.commands, host=settings).configure, "{}\n")
    assert "host jetson-1: sudo refuses without a password" in done.stderr


def test_a_login_without_sudo_is_told_so(login: Login) -> None:
    login.program("id", "echo 1000")
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "host jetson-1: the login is not root, and sudo is missing. Install sudo, or log in as root."
    )


def test_a_refused_sudo_says_what_to_do(login: Login) -> None:
    login.is_no_administrator(password=None)
    settings = login.commands.host.model_copy(update={"sudo_password_secret": None})
    done = login.run(replace(login.commands, host=settings).configure, "{}\n")
    assert done.returncode == 1
    assert "host jetson-1: sudo refuses without a password" in done.stderr
    assert "hosts.jetson-1.sudo_password_secret: NAME" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("secret", ["sudo", None])
def test_a_sudo_that_wants_a_terminal_is_told_from_one_that_wants_a_password(login: Login, secret: str | None) -> None:
    login.is_no_administrator(password=None)
    login.program("id", '[ "$1" = -un ] && echo jane || echo 1000')
    login.program("sudo", "echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1")
    settings = login.commands.host.model_copy(update={"sudo_password_secret": secret})
    done = login.run(replace(login.commands, host=settings).configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "sudo wants a terminal (requiretty)" in done.stderr
    assert done.stderr.splitlines()[-1] == "Defaults:jane !requiretty"
    assert "Store" not in done.stderr


@pytest.mark.parametrize(
    "said",
    [
        "jane is not in the sudoers file.  This incident will be reported.",
        "Sorry, user jane is not allowed to execute '/usr/bin/timeout 10 python3 -V' as root on jetson-1.",
        "Sorry, user jane may not run sudo on jetson-1.",
    ],
)
def test_a_right_password_of_a_login_that_may_not_use_sudo_is_not_called_a_wrong_one(login: Login, said: str) -> None:
    login.is_no_administrator(password=None)
    refuse = '[ "$2" = -n ] && echo "sudo: a password is required" >&2 || cat <<END >&2'
    login.program("sudo", f"{refuse}\n{said}\nEND\nexit 1")
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "does not let this login run everything as root" in done.stderr
    assert "Store the right one" not in done.stderr


@pytest.mark.parametrize("secret", ["sudo", None])
@pytest.mark.parametrize(
    "said",
    [
        "sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set",
        "sudo: /etc/sudoers is world writable\nsudo: no valid sudoers sources found, quitting",
        "timeout: failed to run command 'python3': Permission denied",
        "timeout: failed to run command 'python3': No such file or directory",
    ],
    ids=["setuid", "sudoers", "noexec", "secure_path"],
)
def test_a_sudo_that_fails_for_another_reason_is_not_said_to_want_a_password(
    login: Login, said: str, secret: str | None
) -> None:
    """Of sudo 1.9.13; the last two with `Defaults noexec`, and with a `secure_path` in which no python3 is."""
    login.is_no_administrator(password=None)
    login.program("sudo", f"cat <<END >&2\n{said}\nEND\nexit 1")
    settings = login.commands.host.model_copy(update={"sudo_password_secret": secret})
    done = login.run(replace(login.commands, host=settings).configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{said}\nhost jetson-1: sudo fails there, and its words above say why. See that")


def test_a_right_password_that_has_expired_is_not_called_a_wrong_one(login: Login) -> None:
    """In these words sudo 1.9.13 and sudo-rs, as after `chage -d 0`."""
    login.is_no_administrator(password=None)
    said = "sudo: Account or password is expired, reset your password and try again\nsudo: a password is required"
    refuse = '[ "$2" = -n ] && echo "sudo: a password is required" >&2 || cat <<END >&2'
    login.program("sudo", f"{refuse}\n{said}\nEND\nexit 1")
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{said}\nhost jetson-1: sudo fails there, and its words above say why. See that")


@pytest.mark.parametrize("secret", ["sudo", None])
@pytest.mark.parametrize("name", ["sudo-rs", "sudo"])
def test_sudo_rs_says_before_it_asks_that_a_login_may_not_use_it(login: Login, secret: str | None, name: str) -> None:
    """In these words from 0.2.5 to 0.2.15; Ubuntu has it in the place of sudo since 25.10."""
    login.is_no_administrator(password=None)
    said = f"{name}: I'm sorry jane. I'm afraid I can't do that"
    login.program("sudo", f"cat <<END >&2\n{said}\nEND\nexit 1")
    settings = login.commands.host.model_copy(update={"sudo_password_secret": secret})
    done = login.run(replace(login.commands, host=settings).configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{said}\nhost jetson-1: sudo does not let this login run everything as root. Add")
    assert "Store" not in done.stderr


@pytest.mark.parametrize("version", ["0.2.5", "0.2.6"])
def test_a_sudo_rs_that_loses_what_follows_the_password_is_refused_by_name(login: Login, version: str) -> None:
    login.is_no_administrator(password=None)
    asks = 'case $* in *" -n "*) echo "sudo-rs: interactive authentication is required" >&2; exit 1 ;; esac'
    login.program("sudo", f'[ "$1" = --version ] && echo "sudo-rs {version}" >&2 && exit\n{asks}\ncat >/dev/null')
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("host jetson-1: sudo-rs before 0.2.7 loses what follows the password. Upgrade it")


@pytest.mark.parametrize("free", [True, False])
def test_root_without_a_right_to_read_the_home_runs_a_copy_that_goes_again(login: Login, *, free: bool) -> None:
    """As on an NFS server with root_squash, or in an encrypted home."""
    login.is_no_administrator(password=_PASSWORD)
    if free:
        (login.home / "sudo-without-password").touch()
    copies = login.home / "copies"
    login.program("test", f'[ "$1" = -r ] && exit 1 || exec {shutil.which("test")} "$@"')
    login.program("mktemp", f'[ "$1" = -d ] && {shutil.which("mkdir")} {copies} && echo {copies}')
    login.program(
        "python3", f'case $* in -V | *untouched*) ;; *) echo "$2" >> which ;; esac; exec {sys.executable} "$@"'
    )
    for command in (login.commands.configure, login.commands.check("1"), login.commands.restore):
        done = login.run(command, f"{_PASSWORD}\n{{}}\n")
        assert done.returncode == 0, done.stderr
        assert not copies.exists()
    assert set((login.home / "which").read_text().splitlines()) == {f"{copies}/kai-host.pyz"}


def test_a_host_without_python_says_so(login: Login) -> None:
    (login.programs / "python3").unlink()
    for command in (login.commands.probe, login.commands.configure, login.commands.restore):
        done = login.run(command, f"{_PASSWORD}\n{{}}\n")
        assert done.returncode == 1
        assert done.stderr.startswith("host jetson-1: python3 is missing. Install it (3.8 or later)")


def test_a_file_that_is_not_the_copied_one_is_not_run(login: Login) -> None:
    agent = login.home / login.commands.remote_agent
    agent.write_bytes(b"#!/bin/sh\ntouch was-run\n" + agent.read_bytes())
    commands = login.commands
    for command in (commands.probe, commands.configure, commands.check("1"), commands.restore):
        done = login.run(command, f"{_PASSWORD}\n{{}}\n")
        assert done.returncode == 1
        assert "kai-host.pyz: FAILED" in done.stdout
    assert not (login.home / "was-run").exists()


@pytest.mark.parametrize("shell", _LOGIN_SHELLS)
def test_whatever_the_logins_own_shell_is_the_copied_file_is_run_and_no_other(login: Login, shell: str) -> None:
    folder = "/opt/it's \\n 100%! $HOME"
    commands = replace(login.commands, library_folders=(folder,))

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(shutil.which(shell)), "-c", command],
            cwd=login.home,
            env={"PATH": str(login.programs), "HOME": str(login.home)},
            input=f"{_PASSWORD}\n{{}}\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    done = run(commands.probe)
    assert (done.returncode, done.stdout) == (0, f"probe {['--libraries', folder, '--timeout', '60']} \n"), done.stderr
    assert run(commands.restore).returncode == 0
    assert not (login.home / ".kai-anywhere").exists()
    agent = login.home / commands.remote_agent
    agent.parent.mkdir(parents=True)
    agent.write_text("touch was-run")
    for command in (commands.probe, commands.configure, commands.restore):
        done = run(command)
        assert (done.returncode, "kai-host.pyz: FAILED" in done.stdout) == (1, True)
    assert not (login.home / "was-run").exists()


@pytest.mark.parametrize("status", [1, 2, 3])
def test_an_agent_that_fails_fails_the_command(login: Login, status: int) -> None:
    (login.home / "status-configure").write_text(str(status))
    assert login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n").returncode == status


def test_what_is_not_in_force_after_configuring_is_an_error_with_the_agents_answer(login: Login) -> None:
    (login.home / "status-check").write_text("3")
    done = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    assert done.returncode == 1
    assert "check ['--timeout', '30'] {}" in done.stdout
    assert "host jetson-1: it was configured, but that is not in force" in done.stderr


def test_a_drift_says_how_it_is_repaired(login: Login) -> None:
    (login.home / "status-check").write_text("3")
    done = login.run(login.commands.check("once"), f"{_PASSWORD}\n{{}}\n")
    assert done.returncode == 1
    assert "Raise hosts.jetson-1.revision to repair it." in done.stderr


@pytest.mark.parametrize("status", [1, 2, 124])
def test_a_look_that_fails_is_not_called_a_drift(login: Login, status: int) -> None:
    """As where containerd does not say in time what it makes of its files."""
    (login.home / "status-check").write_text(str(status))
    configured = login.run(login.commands.configure, f"{_PASSWORD}\n{{}}\n")
    checked = login.run(login.commands.check("once"), f"{_PASSWORD}\n{{}}\n")
    for done in (configured, checked):
        assert done.returncode == 1
        assert done.stdout.rpartition("check ")[2].endswith("] {}\n")
        assert "in force could not be found out; the answer says why." in done.stderr
        assert "revision" not in done.stderr


def test_restoring_takes_the_agent_away_once_it_succeeded(login: Login) -> None:
    (login.home / "status-restore").write_text("1")
    assert login.run(login.commands.restore, f"{_PASSWORD}\n{{}}\n").returncode == 1
    assert (login.home / ".kai-anywhere").exists(), "what failed must be possible again"
    (login.home / "status-restore").unlink()
    done = login.run(login.commands.restore, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout) == (0, "restore ['--stack', 'kai-anywhere/rack-1', '--timeout', '30'] \n")
    assert not (login.home / ".kai-anywhere").exists()


def test_a_host_on_which_nothing_was_changed_is_left_without_sudo(login: Login) -> None:
    """Sudo may be what kept `pulumi up` from changing it; the host must be free to go all the same."""
    login.is_no_administrator(password=None)
    refused = login.run(login.commands.restore, f"{_PASSWORD}\n")
    assert refused.returncode == 1
    assert "sudo refuses" in refused.stderr
    assert (login.home / ".kai-anywhere").exists()
    (login.home / "status-untouched").write_text("0")
    done = login.run(login.commands.restore, f"{_PASSWORD}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (login.home / ".kai-anywhere").exists()


@pytest.mark.parametrize("status", ["0", "4"])
def test_a_stack_that_leaves_a_host_to_another_one_takes_only_its_own_agent_away(login: Login, status: str) -> None:
    """The status is 0 where neither of both had anything to change: then nothing on the host says whose it is."""
    theirs = replace(login.commands, stack="kai-anywhere/rack-2")
    (login.home / theirs.remote_agent).parent.mkdir(parents=True)
    shutil.copy(login.home / login.commands.remote_agent, login.home / theirs.remote_agent)
    (login.home / "status-restore").write_text(status)
    assert login.run(login.commands.restore, f"{_PASSWORD}\n{{}}\n").returncode == 0
    assert not (login.home / login.commands.remote_agent).parents[1].exists()
    (login.home / "status-restore").unlink()
    done = login.run(theirs.restore, f"{_PASSWORD}\n{{}}\n")
    assert done.stdout.startswith("restore ['--stack', 'kai-anywhere/rack-2'"), done.stderr
    assert not (login.home / ".kai-anywhere").exists()


def test_restoring_one_host_of_a_shared_home_leaves_the_agents_of_the_others(login: Login) -> None:
    other = replace(login.commands, node="jetson-1.b")
    newer = replace(login.commands, agent=replace(login.commands.agent, sha256="0" * 64))
    content = (login.home / login.commands.remote_agent).read_bytes()
    for commands in (other, newer):
        (login.home / commands.remote_agent).parent.mkdir(parents=True)
        (login.home / commands.remote_agent).write_bytes(content)
    assert login.run(login.commands.restore, f"{_PASSWORD}\n").returncode == 0
    assert not (login.home / ".kai-anywhere" / "jetson-1").exists()
    assert login.run(other.restore, f"{_PASSWORD}\n").returncode == 0
    assert not (login.home / ".kai-anywhere").exists()


def test_a_newer_agent_that_was_copied_does_not_hinder_the_one_that_configured(login: Login) -> None:
    newer = replace(login.commands, agent=replace(login.commands.agent, sha256="0" * 64))
    (login.home / newer.remote_agent).parent.mkdir(parents=True)
    (login.home / newer.remote_agent).write_bytes(b"newer")
    assert login.run(login.commands.restore, f"{_PASSWORD}\n").stdout.startswith("restore ")


def test_restoring_without_the_agent_says_what_to_do_where_a_journal_has_something_to_take_back(login: Login) -> None:
    (login.home / login.commands.remote_agent).unlink()
    journal = login.home / "journal"
    restore = login.commands.restore.replace("/var/lib/kai-anywhere", str(journal))
    journal.mkdir()
    done = login.run(restore, f"{_PASSWORD}\n{{}}\n")
    assert done.returncode == 1
    assert "Raise hosts.jetson-1.revision and run pulumi up, or set hosts.jetson-1.gone: true." in done.stderr
    journal.rmdir()
    done = login.run(restore, f"{_PASSWORD}\n{{}}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_agent_that_hangs_is_ended(login: Login) -> None:
    login.program("timeout", 'shift 2; echo "limit $1"; exit 124')
    assert login.run(login.commands.probe).stdout == "limit 75\n"


def test_another_agent_or_revision_is_another_command_and_another_password_is_not(login: Login) -> None:
    commands = login.commands
    other = replace(commands, agent=replace(commands.agent, sha256="0" * 64))
    revised = replace(commands, host=commands.host.model_copy(update={"revision": 1}))
    renamed = replace(commands, host=commands.host.model_copy(update={"sudo_password_secret": "other"}))
    for different in (other, revised):
        assert different.probe != commands.probe
        assert different.configure != commands.configure
    assert revised.restore == commands.restore
    assert renamed.configure == commands.configure
    assert commands.check("1") != commands.check("2")
