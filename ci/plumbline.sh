#!/bin/sh
# Plumbline in anybody's CI: runs `plumbline COMMAND ARGUMENT...` and leaves every report in one folder.
#
#   ci/plumbline.sh verify nats://127.0.0.1:4222 --waivers waivers.toml
#   ci/plumbline.sh gate --protocol nats -- python adapter.py
#
# PLUMBLINE_OUTPUT       the folder, made if need be (plumbline-results)
# PLUMBLINE_REQUIREMENT  what pip installs where there is no plumbline yet (plumbline-mq)
# PLUMBLINE_SUMMARY      a file that the Markdown summary is added to; GitHub's step summary if that is there
#
# Exits as plumbline does: 0 conformant, 1 not conformant, 2 usage, 3 target lost, 4 error of Plumbline itself.
set -u

output=${PLUMBLINE_OUTPUT:-plumbline-results}
summary=${PLUMBLINE_SUMMARY:-${GITHUB_STEP_SUMMARY:-}}

fail() {
    echo "plumbline.sh: $*" >&2
    exit 2
}

[ $# -gt 0 ] || fail "say what to run, such as: verify nats://127.0.0.1:4222"
command=$1
shift
mkdir -p "$output" || fail "$output cannot be made: set PLUMBLINE_OUTPUT to a folder that can"

if ! command -v plumbline >/dev/null 2>&1; then
    python=$(command -v python3 || command -v python) || fail "there is neither plumbline nor Python here"
    "$python" -m venv "$output/.venv" && "$output/.venv/bin/python" -m pip install --quiet \
        "${PLUMBLINE_REQUIREMENT:-plumbline-mq}" || fail "plumbline cannot be installed: see what pip said"
    PATH=$(cd "$output/.venv/bin" && pwd):$PATH
fi

case $command in
verify | gate) set -- --json "$output/result.json" --junit "$output/junit.xml" --html "$output/report.html" \
    --markdown "$output/summary.md" "$@" ;;
esac
plumbline "$command" "$@"
status=$?

if [ -n "$summary" ] && [ -s "$output/summary.md" ]; then
    cat "$output/summary.md" >>"$summary"
fi
rm -rf "$output/.venv"
exit $status
