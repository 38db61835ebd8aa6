#!/bin/sh
# Runs every fuzzer of the library, of valkeyrdma, of s3rdma and of the test bed for a while: fuzz.sh 60s. What
# one finds is kept under testdata/fuzz and fails the ordinary tests from then on.
set -eu
time=${1:-60s}
go=${GO:-go}
for module in . testbed valkeyrdma s3rdma; do
	for pkg in $($go list -C "$module" ./...); do
		for fuzzer in $($go test -C "$module" -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
			echo "$pkg $fuzzer"
			$go test -C "$module" -run='^$' -fuzz="^$fuzzer\$" -fuzztime="$time" "$pkg"
		done
	done
done
