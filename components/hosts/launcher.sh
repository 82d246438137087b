#!/bin/sh
# Starts the host agent, which is the zip archive behind this text:
#   sh FILE probe|configure|check|restore NODE SECONDS none|password STACK [FOLDER...]
# The folders are where the stack says that the driver's libraries are; the probe looks there too.
# On stdin: the sudo password in one line if it is said, then the document in one line.
set -u
export LC_ALL=C
command=$1 node=$2 seconds=$3 secret=$4 stack=$5
shift 5

fail() {
    printf 'host %s: %s\n' "$node" "$1" >&2
    exit 1
}

# `timeout` bounds Python itself, and stands inside sudo: a login can't end a process of root. The agent's own limit
# comes first, so that it rolls back.
agent() {
    as_root timeout -k 10 $((seconds + 15)) python3 -I "$file" "$@" --timeout "$seconds"
}
file=$0
# Exit status of the agent's `check` (agents/host/cli.py).
drift=3

# Whether these are the words in which sudo 1.9, or sudo-rs, keeps a login from running everything as root.
forbidden() {
    case $1 in
        *'not in the sudoers'* | *'is not allowed to'* | *'may not run sudo'* | *"I'm afraid I can't do that"*) ;;
        *) return 1 ;;
    esac
    printf '%s\n' "$1" >&2
}
# Whether these are the words in which sudo, or sudo-rs, wants a password, or another one.
asks() {
    case $1 in
        *' expired'*) false ;;
        *'assword is required'* | *'uthentication is required'* | *'incorrect '* | *'uthentication failed'*) ;;
        *) false ;;
    esac
}
may_not='sudo does not let this login run everything as root. Add the login to the group sudo or wheel there, or write a
rule for it with visudo.'
fails='sudo fails there, and its words above say why. See that `sudo timeout 10 python3 -V` works for this login, then
run pulumi up again.'

command -v python3 >/dev/null ||
    fail 'python3 is missing. Install it (3.8 or later), then run pulumi up again.'

if [ "$command" = probe ]; then
    as_root() { "$@"; }
    for folder; do
        shift
        set -- "$@" --libraries "$folder"
    done
    agent probe "$@" </dev/null
    exit
fi

password=
[ "$secret" = none ] || IFS= read -r password
IFS= read -r document || document=

# Where nothing was changed, nobody needs sudo, which may be what kept a run from changing it.
if [ "$command" = restore ] && [ "$(id -u)" != 0 ]; then
    as_root() { "$@"; }
    agent untouched </dev/null >/dev/null && exit
fi

if [ "$(id -u)" = 0 ]; then
    as_root() { "$@"; }
elif ! command -v sudo >/dev/null; then
    fail 'the login is not root, and sudo is missing. Install sudo, or log in as root.'
# With -k, sudo forgets for this command that somebody said the password before. Where it remembers that for every
# session (timestamp_type=global), it would not read the password, and the agent would get it as its document.
elif said=$(sudo -k -n timeout 10 python3 -V 2>&1); then
    as_root() { sudo -k -n "$@"; }
elif case $said in *'must have a tty'*) true ;; *) false ;; esac; then
    fail "sudo wants a terminal (requiretty), which no run has. Write this into its rules there, with visudo:
Defaults:$(id -un) !requiretty"
elif forbidden "$said"; then
    # sudo-rs says so before it asks for a password.
    fail "$may_not"
elif [ "$secret" = password ]; then
    # Alone before anything else: sudo takes what follows a wrong password, the document, for another try.
    said=$(printf '%s\n' "$password" | sudo -k -S -p '' timeout 10 python3 -V 2>&1) || {
        forbidden "$said" && fail "$may_not"
        printf '%s\n' "$said" >&2
        asks "$said" || fail "$fails"
        fail "sudo refuses the password that hosts.$node.sudo_password_secret names. Store the right one, then run
pulumi up: pulumi destroy uses what the last pulumi up did."
    }
    # Seen with 0.2.5, which Debian 13 has, and 0.2.6.
    case $(sudo --version </dev/null 2>&1) in 'sudo-rs 0.2.'[0-6])
        fail 'sudo-rs before 0.2.7 loses what follows the password. Upgrade it there, or allow this login sudo without a
password.' ;;
    esac
    as_root() { { printf '%s\n' "$password" && cat; } | sudo -k -S -p '' "$@"; }
else
    printf '%s\n' "$said" >&2
    asks "$said" || fail "$fails"
    fail "sudo refuses without a password. Store the password with 'pulumi config set --secret NAME' and say
hosts.$node.sudo_password_secret: NAME, or allow this login sudo without one."
fi

# A server that shares homes may give root no right to read them (NFS with root_squash): then root gets a copy.
if ! as_root test -r "$0" </dev/null; then
    copy=$(as_root mktemp -d /run/kai-anywhere-agent.XXXXXX </dev/null) ||
        fail "root can't read $0 in this home, and no copy can be made for it in /run."
    trap 'as_root rm -rf "$copy" </dev/null' EXIT
    file=$copy/kai-host.pyz
    as_root tee "$file" <"$0" >/dev/null || fail "root can't read $0 in this home, and $file can't be written."
fi

case $command in
    configure)
        printf '%s\n' "$document" | agent configure --stack "$stack" || exit
        found=$(printf '%s\n' "$document" | agent check) || {
            status=$?
            printf '%s\n' "$found"
            [ $status != $drift ] ||
                fail 'it was configured, but that is not in force; the answer says what differs.'
            fail 'it was configured, but whether that is in force could not be found out; the answer says why.'
        }
        ;;
    check)
        printf '%s\n' "$document" | agent check || {
            [ $? != $drift ] || fail "not everything is in force any more. Raise hosts.$node.revision to repair it."
            fail 'whether everything is in force could not be found out; the answer says why.'
        }
        ;;
    restore)
        agent restore --stack "$stack" </dev/null
        ;;
    *) fail "there is no command '$command'." ;;
esac
exit
