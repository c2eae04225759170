#!/bin/sh
# Makes a virtual environment with Plumbline: sh ci/install-plumbline.sh FOLDER
#
# It installs the checkout that this script is part of, with the dependencies of requirements.lock, which pip compares
# hash by hash. PLUMBLINE_REQUIREMENT names something else for pip to install, for example a wheel with its hash.
# There is no default on a package index: the name `plumbline` belongs to another project there.
set -eu

folder=${1:?"a folder for the environment is missing: sh ci/install-plumbline.sh FOLDER"}
checkout=$(cd "$(dirname "$0")/.." && pwd)

fail() {
    echo "install-plumbline.sh: $*" >&2
    exit 2
}

python=$(command -v python3 || command -v python) || fail "Python 3.11 or newer is not on PATH"
if [ -z "${PLUMBLINE_REQUIREMENT:-}" ] && ! grep -q '^name = "plumbline-mq"$' "$checkout/pyproject.toml" 2>/dev/null; then
    fail "set PLUMBLINE_REQUIREMENT to what pip is to install: this script is not in a checkout of Plumbline"
fi

"$python" -m venv "$folder"
pip() {
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || fail "pip could not install Plumbline"
}
if [ -n "${PLUMBLINE_REQUIREMENT:-}" ]; then
    pip "$PLUMBLINE_REQUIREMENT"
else
    pip --require-hashes -r "$checkout/requirements.lock"
    pip --no-index --no-deps --no-build-isolation --editable "$checkout"
fi
