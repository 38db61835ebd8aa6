package program

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// listening ends when a TCP port is open. It starts no programs, which would slow down the one that it waits for: it
// pauses by reading from a shell that writes nothing.
const listening = `coproc { read; }
for ((;;)); do
	for f in /proc/net/tcp /proc/net/tcp6; do
		while read -r _ local _ state _; do
			[[ $state == 0A && $local == *:%04X ]] && exit 0
		done < $f
	done
	read -t 0.02 -u ${COPROC[0]}
done`

// Listening starts a program that ends when a TCP port of the guest is open: C programs do not report that they listen.
func Listening(t testing.TB, g *vm.Guest, port int) *Process {
	t.Helper()
	return Start(t, g, "bash", "-c", fmt.Sprintf(listening, port))
}
