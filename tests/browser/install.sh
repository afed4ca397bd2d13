#!/usr/bin/env bash
# Installs Debian's Chromium for the tests of the console, where that is possible; they are skipped without it.
set -uo pipefail
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" > /dev/null; then exit 0; fi
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
  echo "Chromium is not installed: tests/browser will be skipped" >&2
  exit 0
fi
{ apt-get update && DEBIAN_FRONTEND=noninteractive timeout 240 apt-get install --yes --no-install-recommends chromium; } \
  > /dev/null 2>&1 || echo "Chromium could not be installed: tests/browser will be skipped" >&2
exit 0
