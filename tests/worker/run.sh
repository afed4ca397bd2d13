#!/usr/bin/env bash
# Run tests/worker on Python 3.13 or later, where one can be found; say so where not.
set -euo pipefail
cd "$(dirname "$0")/../.."

find_python() {
  local candidate
  for candidate in "${WORKER_PYTHON:-}" python3.13 python3.14 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[3-9]*/bin/python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

python=$(find_python)
if [ -z "$python" ]; then
  echo "No Python 3.13 or later was found, so the app was NOT tried on the platform's own worker." >&2
  echo "Set WORKER_PYTHON=/path/to/python3.13 to try it." >&2
  exit 0
fi
stamp=.venv-worker/.installed-worker
if [ ! -e "$stamp" ] || [ -n "$(find pyproject.toml requirements*.txt -newer "$stamp")" ]; then
  "$python" local/make_venv.py worker
fi
exec .venv-worker/bin/python -m pytest tests/worker "$@"
