#!/bin/sh
# Fails if two parts of the tree are the same but for names and values. A part has 90 nodes of the syntax, about 20 lines;
# in tests 150. Generated files and the software ConnectX's tables of fields are left out.
# The argument is the program of github.com/mibk/dupl.
set -eu
sources() { git ls-files -co --exclude-standard '*.go' ':!**/z*.go' ':!internal/sim/connectx/prm'; }
test -n "$(sources)"
found="$(sources | grep -v '_test\.go$' | "$1" -files -plumbing -threshold 90
	sources | grep '_test\.go$' | "$1" -files -plumbing -threshold 150)"
test -z "$found" || { echo "$found"; echo "write these once"; exit 1; }
