#!/bin/sh
# Runs the tests of races again and again under the race detector, for a while:
# chaos.sh 15m. Each pass has another order of tests and number of CPUs, waits that
# poll or sleep, another garbage collector, and may have no asynchronous preemption.
# The first test that fails ends it, and is printed with what repeats the pass.
#
# These are the tests whose names have one of the words below: dials that are
# cancelled, rejected, migrated and closed, devices that are removed, CQs and
# channels that come and go. They need no device.
set -eu
duration=${1:-15m}
go=${GO:-go}
words='Race|Stress|Chaos|Churn|Storm|Concurrent|Gone|Remov|Polling'

case $duration in
*h) seconds=$((${duration%h} * 3600)) ;;
*m) seconds=$((${duration%m} * 60)) ;;
*) seconds=$((${duration%s})) ;;
esac
export CGO_ENABLED=1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

any() { shift $(($(random) % $#)); echo "$1"; }
random() { od -An -N4 -tu4 /dev/urandom | tr -d ' '; }

binaries=
for pkg in $($go list -f '.{{slice .Dir (len .Module.Dir)}}' ./...); do
	if ! grep -qsE "^func Test\w*($words)" "$pkg"/*_test.go; then
		continue
	fi
	binary=$dir/$(echo "$pkg" | tr -d . | tr / _).test
	$go test -race -vet=off -c -o "$binary" "$pkg"
	if [ -n "$(cd "$pkg" && [ -e "$binary" ] && "$binary" -test.list "$words")" ]; then
		binaries="$binaries $pkg=$binary"
	fi
done

began=$(date +%s)
pass=0
while [ $(($(date +%s) - began)) -lt "$seconds" ]; do
	pass=$((pass + 1))
	for entry in $binaries; do
		pkg=${entry%%=*}
		seed=$(random)
		env="GOMAXPROCS=$(any 1 2 4 8) GOVERBS_POLLING=$(any 0 -1ns 1ms) GOGC=$(any 100 1) GODEBUG=asyncpreemptoff=$(any 0 1)"
		if ! (cd "$pkg" && env $env "${entry#*=}" -test.run="$words" -test.shuffle="$seed" -test.timeout=15m) >"$dir/out" 2>&1; then
			cat "$dir/out"
			echo "chaos: pass $pass of $pkg failed after $(($(date +%s) - began)) s. Again:"
			echo "CGO_ENABLED=1 $go test -race -vet=off -timeout=15m -exec='env $env' -run='$words' -shuffle=$seed $pkg"
			exit 1
		fi
	done
	echo "chaos: pass $pass, $(($(date +%s) - began)) of $seconds s"
done
echo "chaos: $pass passes found nothing"
