//go:build vm

package main

import (
	_ "embed"
	"testing"
)

//go:embed testdata/nvme.sh
var nvmeScript string

//go:embed testdata/srp.sh
var srpScript string

//go:embed testdata/nfs.sh
var nfsScript string

// TestStorage lets the kernel's storage and file systems use the device, which is at both ends, and checks the data:
// block devices by fio's checksums and by comparing them with the RAM disk that they are, files by a hash. InfiniBand
// has no addresses here, since there is no subnet manager.
func TestStorage(t *testing.T) {
	forAll(t)
	m := startApps(t, place{"6.12", roce}, "brd", "nvme_rdma", "nvmet_rdma", "ib_srp", "ib_srpt", "target_core_iblock",
		"sd_mod", "nfsd", "nfsv4", "rpcrdma")
	for _, x := range []struct{ name, script string }{{"nvme", nvmeScript}, {"nfs", nfsScript}, {"srp", srpScript}} {
		t.Run(x.name, func(t *testing.T) {
			if out := m.output(t, m.guests[0], x.script); out != "verified\n" {
				t.Errorf("it printed %q", out)
			}
		})
	}
	// The kernel keeps completion queues for other users of a device, as long as its driver is loaded.
	m.output(t, m.guests[0], "rmmod mlx5_ib")
	m.world.Loop.Run(func() {
		if n := m.world.Devices[0].Engine().Objects(); n.QPs+n.SRQs+n.XRCDs > 0 {
			t.Errorf("after mlx5_ib there are %+v", n)
		}
	})
}
