#!/usr/bin/env bash
# Keeps the log of a build outside of the window, and finds what broke it again.
#
#   build_log.sh                    # a build made up here: 4,000 lines, one of them the error
#   build_log.sh make -j8           # or a real one
#   QUERY="undefined reference" build_log.sh make -j8
#
# The line that is shown is one of the first 256 KiB of a text: put a longer log in parts.
set -euo pipefail

made_up_build() {
    for file in {1..4000}; do
        echo "[$file/4000] cc -O2 -Wall -c src/module_$file.c"
        # The rest goes on, as in any parallel build: the error is neither the first line nor the last.
        if [ "$file" = 2718 ]; then
            echo "src/ledger.c:214:17: error: implicit declaration of function 'ledger_open'"
        fi
    done
    echo "make: *** [Makefile:42: all] Error 1"
    return 2
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ $# -eq 0 ]; then set -- made_up_build; fi
"$@" >"$log" 2>&1 || echo "the build failed with $?"
echo "its log has $(wc -l <"$log") lines"

# The same text is kept once, with the tags it had first; a tag made of the text is the same again, too.
tag=build-$(cksum <"$log" | cut -d' ' -f1)
waystone segment put --file "$log" --type log --tag "$tag"

# Out of the window, not out of reach: every byte is kept, and `waystone undo` brings it back in.
waystone segment stash --tag "$tag"

# Later, without the log: the search answers with the line that fits best, and with the id of what it is in.
field() {
    python3 -c 'import json, sys
hits = json.load(sys.stdin)["segments"]
print(hits[0][sys.argv[1]] if hits else sys.exit("nothing in the log fits"))' "$1"
}
found=$(waystone segment search "${QUERY:-error}" --tag "$tag" --json)
handle=ws:segment:$(field segment_id <<<"$found")
error=$(field snippet <<<"$found")
echo "found: $error"
echo "in:    $handle"

# A handle gives back all of it, or a few lines: what an agent needs, for a thousandth of the tokens. Of a very long
# line the search shows a part, between two marks.
part=${error#…}
number=$(waystone expand "$handle" | grep -nF -- "${part%…}" | sed -n '1s/:.*//p')
echo "line $number, with what stands around it:"
waystone expand "$handle?lines=$((number > 2 ? number - 2 : 1))-$((number + 2))"
