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
    as_root timeout -k 10 $((seconds + 15)) python3 -I "$0" "$@" --timeout "$seconds"
}

command -v python3 >/dev/null ||
    fail 'python3 is missing. Install it (3.8 or later), then run pulumi up again.'

if [ "$command" = probe ]; then
    as_root() { "$@"; }
    for folder; do
        shift
        set -- "$@" --libraries "$folder"
    done
    agent probe "$@"
    exit
fi

password=
[ "$secret" = none ] || IFS= read -r password
IFS= read -r document || document=

if [ "$(id -u)" = 0 ]; then
    as_root() { "$@"; }
elif ! command -v sudo >/dev/null; then
    fail 'the login is not root, and sudo is missing. Install sudo, or log in as root.'
# With -k, sudo forgets for this command that somebody said the password before. Where it remembers that for every
# session (timestamp_type=global), it would not read the password, and the agent would get it as its document.
elif sudo -k -n timeout 10 true 2>/dev/null; then
    as_root() { sudo -k -n "$@"; }
elif [ "$secret" = password ]; then
    # Alone before anything else: sudo takes what follows a wrong password, the document, for another try.
    printf '%s\n' "$password" | sudo -k -S -p '' timeout 10 true ||
        fail "sudo refuses the password that hosts.$node.sudo_password_secret names. Store the right one."
    as_root() { { printf '%s\n' "$password" && cat; } | sudo -k -S -p '' "$@"; }
else
    fail "sudo refuses without a password. Store the password with 'pulumi config set --secret NAME' and say
hosts.$node.sudo_password_secret: NAME, or allow this login sudo without one."
fi

case $command in
    configure)
        printf '%s\n' "$document" | agent configure --stack "$stack" || exit
        found=$(printf '%s\n' "$document" | agent check) || {
            printf '%s\n' "$found"
            fail 'it was configured, but that is not in force; the answer says what differs.'
        }
        ;;
    check)
        printf '%s\n' "$document" | agent check ||
            fail "not everything is in force any more. Raise hosts.$node.revision to repair it."
        ;;
    restore)
        agent restore --stack "$stack" </dev/null
        ;;
    *) fail "there is no command '$command'." ;;
esac
exit
