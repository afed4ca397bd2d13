#!/usr/bin/env bash
# Install the wheel into an empty environment, and run the commands and the README's examples there. Takes a minute or two.
# WHEEL is a wheel that is built already, CONSTRAINTS a file with the versions of other packages.
set -euo pipefail
cd "$(dirname "$0")"
unset PYTHONPATH

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"${PYTHON:-python3}" -m venv "$directory/env"
python=$directory/env/bin/python
pip=("$python" -m pip --quiet --disable-pip-version-check)
if [ -z "${WHEEL-}" ]; then
  "${pip[@]}" wheel --no-deps --wheel-dir "$directory/wheels" .
fi
wheel=${WHEEL:-$(echo "$directory"/wheels/outbox_emulators-*.whl)}

echo "The Cosmos DB emulator alone" >&2
"${pip[@]}" install "$wheel"
"$directory/env/bin/outbox-emulators" cosmos --port 0 --exit-with-stdin < /dev/null
for extra in servicebus functions; do
  if refusal=$("$directory/env/bin/outbox-emulators" "$extra" 2>&1); then
    echo "outbox-emulators $extra starts without its extra" >&2
    exit 1
  fi
  grep --quiet "pip install 'outbox-emulators\[$extra\]'" <<< "$refusal"
done

echo "All of them, and the README's examples" >&2
"${pip[@]}" install ${CONSTRAINTS:+--constraint "$CONSTRAINTS"} "$wheel[all]" azure-servicebus pytest pytest-asyncio anyio pytest-timeout pytest-xdist
"$directory/env/bin/outbox-emulators" servicebus --port 0 --admin-port 0 --topic orders/all --exit-with-stdin < /dev/null
"$directory/env/bin/outbox-emulators" functions --help > /dev/null
# The tests without the project around them, on the package as installed.
mkdir -p "$directory/project/packages/emulators"
cp -r README.md tests "$directory/project/packages/emulators"
cp compiler.py "$directory/project/packages/emulators"
cd "$directory/project"
"$python" -m pytest --quiet --import-mode=importlib -o pythonpath=. -o asyncio_mode=auto \
  -o asyncio_default_fixture_loop_scope=function -o "markers=slow: takes long" packages/emulators/tests/package
