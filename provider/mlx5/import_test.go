package mlx5

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestImport checks that an imported context posts and polls with its own registers, on the memory and the PD of the
// context that it was imported from, and shares its device memory.
func TestImport(t *testing.T) {
	d := newDesk(t, standard())
	s := d.s
	fd := good(unix.Dup(s.node))(t)
	c := good(importedContext(ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, s),
		uverbs.Device{Name: "mlx5_0", Ports: 1, DriverID: uapi.RDMA_DRIVER_MLX5}, softDriver{standard(), s}))(t)
	defer func() { check(t, c.Close()) }()
	pd := good(c.ImportPD(d.pd.Handle()))(t)
	if _, err := c.ImportPD(12345); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a PD that there is not: %v", err)
	}
	mr := good(pd.ImportMR(d.mr.Handle()))(t)
	dm := good(d.c.AllocDM(uverbs.DMConfig{Size: 128}))(t)
	shared := good(c.ImportDM(dm.Handle()))(t)
	good(dm.WriteAt([]byte("shared memory..."), 64))(t)
	device := make([]byte, 16)
	if good(shared.ReadAt(device, 64))(t); shared.Size() != 128 || string(device) != "shared memory..." {
		t.Errorf("the imported memory has %d bytes, %q", shared.Size(), device)
	}
	other := &desk{s: s, c: c, pd: pd, mr: mr}
	cq := good(c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	q := other.loop(t, uverbs.QPConfig{SendCQ: cq})
	copy(d.mr.Bytes(), "from one to another")
	other.write(t, q, 5)
	poll(t, cq, 5)
	if got := string(d.mr.Bytes()[100:108]); got != "from one" {
		t.Errorf("%q was written", got)
	}
}

// TestImportOfFixedRegisters checks that a context whose registers were allocated by the kernel cannot be imported.
func TestImportOfFixedRegisters(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.TotBfregs = 16 }
	s := newSoft(t, k)
	s.open(k)
	fd := good(unix.Dup(s.node))(t)
	_, err := importedContext(ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, s),
		uverbs.Device{Name: "mlx5_0", Ports: 1, DriverID: uapi.RDMA_DRIVER_MLX5}, softDriver{k, s})
	if !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("import: %v", err)
	}
}
