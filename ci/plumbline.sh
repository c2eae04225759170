#!/bin/sh
# Plumbline in any CI service: runs `plumbline COMMAND ARGUMENT...` and writes every report to one folder.
#
#   ci/plumbline.sh verify nats://127.0.0.1:4222 --waivers waivers.toml
#   ci/plumbline.sh gate --protocol nats -- python adapter.py
#
# Without a plumbline on PATH it installs one into a temporary environment: see install-plumbline.sh.
#
# PLUMBLINE_OUTPUT       the folder, created if it is missing (plumbline-results)
# PLUMBLINE_REQUIREMENT  what pip installs instead of the checkout that this script is part of
# PLUMBLINE_SUMMARY      a file that the Markdown summary is added to; GitHub's step summary if that exists
#
# Exits as plumbline does: 0 conformant, 1 not conformant, 2 usage, 3 target lost, 4 error of Plumbline itself.
set -u

output=${PLUMBLINE_OUTPUT:-plumbline-results}
summary=${PLUMBLINE_SUMMARY:-${GITHUB_STEP_SUMMARY:-}}

fail() {
    echo "plumbline.sh: $*" >&2
    exit 2
}

[ $# -gt 0 ] || fail "the command is missing, for example: verify nats://127.0.0.1:4222"
command=$1
shift
mkdir -p "$output" || fail "$output cannot be created: set PLUMBLINE_OUTPUT to another folder"

if ! command -v plumbline >/dev/null 2>&1; then
    environment=$(mktemp -d) || fail "no temporary folder can be made: set TMPDIR"
    trap 'rm -rf "$environment"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    sh "$(dirname "$0")/install-plumbline.sh" "$environment" || exit 2
    PATH=$environment/bin:$PATH
fi

rm -f "$output/summary.md" # of an earlier run
case $command in
verify | gate) set -- --json "$output/result.json" --junit "$output/junit.xml" --html "$output/report.html" \
    --markdown "$output/summary.md" "$@" ;;
esac
plumbline "$command" "$@"
status=$?

if [ -n "$summary" ] && [ -s "$output/summary.md" ]; then
    cat "$output/summary.md" >>"$summary"
fi
exit $status
