#!/bin/bash
# Builds everything in build/ and runs every test. Needs no display and no GPU.
#   installer/test.sh [-y]     -y: install missing packages without asking
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. installer/common.sh

take_options "$@"
ensure_dependencies
configure
build_targets all

export QT_QPA_PLATFORM=offscreen
# ctest's summary is held back: what was skipped is listed before it.
summary=build/test-summary.txt
: >"$summary"
status=0
ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" \
    --test-output-size-passed 4000000 --test-output-size-failed 4000000 |
    awk -v summary="$summary" '
        /^[0-9]+% tests passed/ { held = 1 }
        held { print > summary; next }
        !/^ +Start +[0-9]+:/ { print; fflush() }' || status=$?

say "" "Skipped:"
# GoogleTest writes "FILE:LINE: Skipped", the reason and "[  SKIPPED ] NAME (N ms)"; Qt Test writes
# "SKIP   : NAME() reason".
LC_ALL=C awk '
    /^\[ RUN      \]/ { reason = ""; taking = 0 }
    /: Skipped$/ { taking = 1; next }
    /^\[  SKIPPED \] .* \([0-9]+ ms\)/ {
        sub(/,$/, "", $4)
        sub(/^skipped: /, "", reason)
        print "  " $4 ": " (reason == "" ? "no reason given" : reason)
        taking = 0
    }
    /^$/ { taking = 0 }
    taking { sub(/^ +/, ""); reason = reason (reason == "" ? "" : " ") $0 }
    /^SKIP   : / { sub(/^SKIP   : /, ""); print "  " $0 }
' build/Testing/Temporary/LastTest.log
say "" "Device code:"
sed -n 's/^-- \(.*device code.*\)/  \1/p' build/configure.log
say ""
cat "$summary"
exit "$status"
