#!/usr/bin/env bash
# Install a wheel into an empty environment, and run the commands and the README's examples there: make release-check.
# PYTHON is the interpreter, WHEEL the wheel, CONSTRAINTS a file with the versions of other packages.
set -euo pipefail
cd "$(dirname "$0")"
unset PYTHONPATH

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"$PYTHON" -m venv "$directory/env"
python=$directory/env/bin/python
pip=("$python" -m pip --quiet --disable-pip-version-check)

echo "The Cosmos DB emulator alone" >&2
"${pip[@]}" install "$WHEEL[cli]"
"$directory/env/bin/outbox-relay-emulators" cosmos --port 0 --exit-with-stdin < /dev/null
for extra in servicebus functions; do
  if refusal=$("$directory/env/bin/outbox-relay-emulators" "$extra" 2>&1); then
    echo "outbox-relay-emulators $extra starts without its extra" >&2
    exit 1
  fi
  grep --quiet "pip install 'outbox-relay-emulators\[$extra\]'" <<< "$refusal"
done

echo "All of them, and the README's examples" >&2
"${pip[@]}" install --constraint "$CONSTRAINTS" "$WHEEL[all]" azure-servicebus pytest pytest-asyncio anyio pytest-timeout pytest-xdist
"$directory/env/bin/outbox-relay-emulators" servicebus --port 0 --admin-port 0 --topic orders/all --exit-with-stdin < /dev/null
"$directory/env/bin/outbox-relay-emulators" functions --help > /dev/null
# The tests without the project around them, on the package as installed.
mkdir -p "$directory/project/packages/emulators"
cp -r README.md tests "$directory/project/packages/emulators"
cp compiler.py "$directory/project/packages/emulators"
cd "$directory/project"
"$python" -m pytest --quiet --import-mode=importlib -o pythonpath=. -o asyncio_mode=auto \
  -o asyncio_default_fixture_loop_scope=function -o "markers=slow: takes long" packages/emulators/tests/package
