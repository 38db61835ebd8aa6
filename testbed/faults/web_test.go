//go:build vm

package faults

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// web runs examples/http, $0, at the address $1. Its client is in the same guest.
const web = `http=$0 at=$1
head -c 8388608 /dev/urandom > /tmp/source
"$http" serve /tmp > /tmp/web 2>&1 &
web=$!
until timeout 10 "$http" get http://$at:7471/source > /tmp/fetched 2>/tmp/get; do
	kill -0 $web || { cat /tmp/web; exit 1; }
done
cmp /tmp/source /tmp/fetched

echo "SIGSTOP"
kill -STOP $web
if timeout 2 "$http" get http://$at:7471/source > /dev/null 2>&1; then exit 1; fi
kill -CONT $web
timeout 60 "$http" get http://$at:7471/source > /tmp/fetched
cmp /tmp/source /tmp/fetched

echo "kill -9"
mkfifo /tmp/slow
timeout 60 "$http" get http://$at:7471/source > /tmp/slow 2>/tmp/get &
client=$!
exec 3< /tmp/slow
head -c 100000 <&3 > /dev/null
kill -9 $web
cat <&3 > /dev/null
if wait $client; then echo "the response is complete"; exit 1; fi
grep 'reset' /tmp/get
exec 3<&-
rm /tmp/source /tmp/fetched /tmp/slow
`

// testWeb has net/http over package rsocket.
func (s *services) testWeb(t *testing.T) {
	t.Log(program.Run(t, s.ends[0].guest, "sh", "-e", "-c", web, s.paths[0]["http"], s.ends[0].address))
}
