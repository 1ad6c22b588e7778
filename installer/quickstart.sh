#!/bin/bash
# From a fresh copy of this tree to the first answer: installs what is missing, builds, and opens
# the window with the starter model, a document and a question about it.
#   installer/quickstart.sh [-y]     -y: install missing packages without asking
# Stays until the window closes. Without a display the same window works unseen: question and
# answer are printed, a picture of the window is build/first-light.png.
# Exit codes: 1 something failed, 2 wrong usage, 3 an administrator is needed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. installer/common.sh

take_options "$@"
ensure_dependencies
configure
build_targets granary granary-cli granary-extract

welcome=resources/welcome
document=$welcome/$(sed -n 's/.*"document": "\([^"]*\)".*/\1/p' $welcome/questions.json)
# A small card in RAM, so that the map shows granules changing hands.
window=(build/bin/granary resources/starter/starter-q4_k_m.gguf --document "$document"
    --device host --vram-budget 40MiB --granule 64KiB)

if [ -n "${DISPLAY-}${WAYLAND_DISPLAY-}" ]; then
    code=0
    # Of what the window says, its report; the rest is kept for a look after a failure.
    "${window[@]}" --first-question \
        > >(tee build/window.log | grep --line-buffered '^Granary is open') 2>&1 || code=$?
    [ "$code" = 0 ] || {
        tail -n 5 build/window.log >&2
        fail 1 "The window ended with code $code; what it said is in build/window.log." \
            "Where the display cannot be reached, run without one:" \
            "    env -u DISPLAY -u WAYLAND_DISPLAY installer/quickstart.sh"
    }
    exit
fi

# The first question and a part of its right answer.
IFS=$'\t' read -r question fact < <(
    sed -n 's/.*"question": "\([^"]*\)".*"fact": "\([^"]*\)".*/\1\t\2/p' $welcome/questions.json)
cat >build/first-light.script <<'SCRIPT'
wait-state Idle
click question1
wait-state Idle
state first-light
shot first-light
quit
SCRIPT
rm -f build/first-light.json build/first-light.png
QT_QPA_PLATFORM=offscreen "${window[@]}" --size 1366x768 --script build/first-light.script \
    --out build >build/window.log 2>&1 || {
    tail -n 5 build/window.log >&2
    fail 1 "The window could not answer; what it said is in build/window.log"
}
# The state is JSON with sorted keys, one a line: after the answer's role comes its text.
answer=$(sed -n '/"role": "assistant"/ {
    n
    s/^ *"text": "\(.*\)",\{0,1\}$/\1/
    s/\\n/ /g
    s/\\"/"/g
    p
    q
}' build/first-light.json)
milliseconds=$(sed -n 's/^ *"ms_to_first_text": \([0-9]*\).*/\1/p' build/first-light.json)
say "" "Document: $document" "Question: $question" "Answer:   $answer" "" \
    "There is no display, so the window worked unseen; the answer began after $milliseconds ms." \
    "Its picture is build/first-light.png"
[[ $answer == *"$fact"* ]] ||
    fail 1 "This answer is wrong: the document says \"$fact\". Please report it."
