//go:build vm && speed

package s3

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestCost prints the figures of docs/s3.md: what PUTs and GETs of minio-go cost by RDMA and by HTTP, in a guest whose
// clock counts instructions. No ratio has a limit.
func TestCost(t *testing.T) {
	g := start(t, vm.Config{ICount: true, MemoryMB: 2048})
	path, err := g.Install(vm.BuildProgram(t, "../../s3rdma/internal/cost", "", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	p := program.StartFor(t, time.Hour, g, path)
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", p)
}
