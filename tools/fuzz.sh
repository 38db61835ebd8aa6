#!/bin/sh
# Runs every fuzzer of the module for a while: fuzz.sh 60s. What one finds is
# kept under testdata/fuzz and fails the ordinary tests from then on.
set -eu
time=${1:-60s}
go=${GO:-go}
for pkg in $($go list ./...); do
	for fuzzer in $($go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "$pkg $fuzzer"
		$go test -run='^$' -fuzz="^$fuzzer\$" -fuzztime="$time" "$pkg"
	done
done
