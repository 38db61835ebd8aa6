//go:build vm

package kernels

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// services runs the examples on packages rdma and rsocket with faults. A benchmark of rkv has begun when its first key
// is there.
const services = `
at=10.9.0.1
serve() {
	rkv serve $at:7471 > /tmp/serve 2>&1 &
	server=$!
	until grep -q serving /tmp/serve; do kill -0 $server || { cat /tmp/serve; exit 1; }; done
}
begin() {
	timeout 120 rkv bench $at:7471 > /tmp/bench 2>&1 &
	client=$!
	until rkv get $at:7471 worker-0 > /tmp/get 2>&1; do kill -0 $client || { cat /tmp/bench; exit 1; }; done
}
finish() {
	wait $client || { cat /tmp/bench; exit 1; }
	grep ' operations in ' /tmp/bench
	kill $server
	wait $server || { cat /tmp/serve; exit 1; }
}

echo "kill -9 and restart"
serve; begin; kill -9 $server; wait $server || true; serve; finish

echo "SIGSTOP"
serve; begin; kill -STOP $server; timeout 1 rkv get $at:7471 common > /dev/null 2>&1 || true; kill -CONT $server; finish

echo "rcp"
head -c 8388608 /dev/urandom > /tmp/source
rcp -l $at:7472 recv /tmp/target > /tmp/recv 2>&1 &
receiver=$!
until grep -q waiting /tmp/recv; do kill -0 $receiver; done
timeout 60 rcp send /tmp/source $at:7472
wait $receiver
cmp /tmp/source /tmp/target

echo "http"
http serve /tmp > /tmp/web 2>&1 &
web=$!
until timeout 10 http get http://$at:7471/source > /tmp/fetched 2>/tmp/get; do
	kill -0 $web || { cat /tmp/web; exit 1; }
done
cmp /tmp/source /tmp/fetched

echo "http, SIGSTOP"
kill -STOP $web
if timeout 2 http get http://$at:7471/source > /dev/null 2>&1; then exit 1; fi
kill -CONT $web
timeout 60 http get http://$at:7471/source > /tmp/fetched
cmp /tmp/source /tmp/fetched

echo "http, kill -9"
mkfifo /tmp/slow
timeout 60 http get http://$at:7471/source > /tmp/slow 2>/tmp/get &
client=$!
exec 3< /tmp/slow
head -c 100000 <&3 > /dev/null
kill -9 $web
cat <&3 > /dev/null
if wait $client; then echo "the response is complete"; exit 1; fi
grep 'reset' /tmp/get
exec 3<&-

echo "echo-ud"
echo-ud -b $at serve > /tmp/echo 2>&1 &
echo=$!
timeout 60 echo-ud -b $at ping
kill $echo
wait $echo

echo "removal of the device"
serve; begin
echo 1 > /sys/class/infiniband/mlx5_0/device/remove
if wait $client; then exit 1; fi
grep -q 'no RDMA device' /tmp/bench
wait $server || true # it ends with its device
`

// TestServices runs the examples on packages rdma and rsocket on the software ConnectX.
func TestServices(t *testing.T) {
	v := &violations{}
	v.allow([]string{"blueflame"}) // processes are killed, and the device is removed, within bursts
	g := site{kernel: "6.12", link: connectx.Ethernet}.boot(t, v)
	script := "set -e; mkdir /tmp/bin; PATH=/tmp/bin:$PATH\n"
	for _, name := range []string{"rkv", "rcp", "echo-ud", "http"} {
		path, err := g.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/examples/"+name, "", "amd64"))
		if err != nil {
			t.Fatal(err)
		}
		script += "ln -s " + path + " /tmp/bin/" + name + "\n"
	}
	t.Log(program.Run(t, g, "sh", "-c", script+services))
}
