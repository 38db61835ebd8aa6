//go:build vm

package kernels

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// objects runs s3rdma/objects, and kills its server and its client.
const objects = `
ip link set lo up
url=http://127.0.0.1:7480/bucket
run() { timeout 60 objects "$@"; }
serve() {
	objects serve /tmp/store > /tmp/serve 2>&1 &
	server=$!
	until grep -q serving /tmp/serve; do kill -0 $server || { cat /tmp/serve; exit 1; }; done
}
rdma() { grep ": $1 bytes by RDMA" /tmp/log || { cat /tmp/log /tmp/serve; exit 1; }; }

mkdir -p /tmp/store/bucket
head -c 4194304 /dev/urandom > /tmp/source
serve

echo "put, get, range"
run put $url/a < /tmp/source 2> /tmp/log; rdma 4194304
run get $url/a > /tmp/target 2> /tmp/log; rdma 4194304
cmp /tmp/source /tmp/target
cmp /tmp/source /tmp/store/bucket/a
run -range bytes=1000000-1999999 get $url/a > /tmp/target 2> /tmp/log; rdma 1000000
dd if=/tmp/source of=/tmp/part bs=1000000 skip=1 count=1 2> /dev/null
cmp /tmp/part /tmp/target

echo "larger than the memory: HTTP"
run -memory 1000000 get $url/a > /tmp/target 2> /tmp/log; grep 'by HTTP.*MaxMemory' /tmp/log
cmp /tmp/source /tmp/target

if ls /sys/class/infiniband | grep -q mlx5; then
	echo "put and get with dynamically connected transport"
	run -t dc put $url/c < /tmp/source 2> /tmp/log; rdma 4194304
	cmp /tmp/source /tmp/store/bucket/c
	run -t dc get $url/c > /tmp/target 2> /tmp/log; rdma 1048576
	cmp /tmp/source /tmp/target
	for i in 1 2 3; do
		run -t dc get $url/c > /dev/null 2>&1 &
		kill -9 $!
		wait $! || true
	done
	run -t dc get $url/c > /tmp/target 2> /tmp/log; rdma 1048576
	cmp /tmp/source /tmp/target
else
	run -t dc get $url/a > /tmp/target 2> /tmp/log; grep 'by HTTP' /tmp/log
	cmp /tmp/source /tmp/target
fi

echo "clients killed"
for i in 1 2 3; do
	run get $url/a > /dev/null 2>&1 &
	kill -9 $!
	wait $! || true
done
run get $url/a > /tmp/target 2> /tmp/log; rdma 4194304
cmp /tmp/source /tmp/target

echo "server killed and restarted"
kill -9 $server
wait $server || true
if run get $url/a > /dev/null 2> /tmp/log; then exit 1; fi
cat /tmp/log
serve
run get $url/a > /tmp/target 2> /tmp/log; rdma 4194304
cmp /tmp/source /tmp/target
kill -INT $server
wait $server || { cat /tmp/serve; exit 1; }
`

// testObjects runs s3rdma/objects in a guest.
func testObjects(t *testing.T, g *vm.Guest) {
	path, err := g.Install(vm.BuildProgram(t, "../../s3rdma/objects", "", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	setup := "set -e; mkdir /tmp/bin; PATH=/tmp/bin:$PATH; ln -s " + path + " /tmp/bin/objects\n"
	t.Log(program.Run(t, g, "sh", "-c", setup+objects))
}
