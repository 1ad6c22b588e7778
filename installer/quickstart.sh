#!/bin/bash
# From a fresh copy of this tree to the first answer: installs what is missing, builds, asks.
#   installer/quickstart.sh [-y]     -y: install missing packages without asking
# Exit codes: 1 something failed, 2 wrong usage, 3 an administrator is needed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. installer/common.sh

take_options "$@"
ensure_dependencies
configure
build_targets granary-cli granary-extract

welcome=resources/welcome
# The first line of questions.json that holds a question.
IFS=$'\t' read -r question fact < <(
    sed -n 's/.*"question": "\([^"]*\)".*"fact": "\([^"]*\)".*/\1\t\2/p' $welcome/questions.json)
document=$welcome/$(sed -n 's/.*"document": "\([^"]*\)".*/\1/p' $welcome/questions.json)

answer=$(build/bin/granary-cli run resources/starter/starter-q4_k_m.gguf \
    --file "$document" --prompt "$question")
say "" "Document: $document" "Question: $question" "Answer:   $answer"
[[ $answer == *"$fact"* ]] ||
    fail 1 "This answer is wrong: the document says \"$fact\". Please report it."
