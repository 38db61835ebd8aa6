package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A threadDomain implements driver.TD. Its queues share one register that no other queue
// uses. They belong to one goroutine, so the register needs no lock.
type threadDomain struct {
	uars *uars
	reg  *register
}

// AllocTD implements driver.TDs.
func (c *deviceContext) AllocTD() (driver.TD, error) {
	r, err := c.uars.ofDomain()
	if err != nil {
		return nil, err
	}
	return &threadDomain{&c.uars, r}, nil
}

// Retire implements driver.TD.
func (d *threadDomain) Retire() error {
	d.uars.mu.Lock()
	defer d.uars.mu.Unlock()
	if d.reg.domain {
		d.uars.spare = append(d.uars.spare, d.reg)
	}
	return nil
}

// ofDomain returns a register for a thread domain.
func (u *uars) ofDomain() (*register, error) {
	const op = "allocate TD"
	if u.fixed != nil {
		return nil, notSupported(op, "the kernel allocates no register pages on demand, Linux 5.7 is the first that does: "+
			"set SingleGoroutine of each queue, which leaves its locks out")
	}
	if u.split == 0 {
		return u.plain, nil // a store of 8 bytes is atomic and needs no lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.spare) == 0 {
		p, err := u.alloc(uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
		if err != nil {
			return nil, kernelError(op, u.dev.Name(), err,
				"the device has no register page left, or a policy forbids it: close thread domains or QPs, or do without")
		}
		for _, r := range u.registersOf(p, uarUsable) {
			r.domain = true
			u.spare = append(u.spare, r)
		}
	}
	last := len(u.spare) - 1
	r := u.spare[last]
	u.spare = u.spare[:last]
	return r, nil
}

// backing is the memory of a queue and its doorbell record.
type backing struct {
	mem    *provider.Mapping
	record record
}

// alloc allocates n bytes, which are whole pages, and a record.
func (b *backing) alloc(c *deviceContext, op string, rings driver.Memory, n int, kind pageKind) (err error) {
	if b.mem, err = queueMemory(op, rings, n, kind); err != nil {
		return err
	}
	if b.record, err = c.records.get(); err != nil {
		return kernelError(op, "", err, "there is no memory for its doorbell record")
	}
	return nil
}

// free frees what alloc has allocated. If inUse is true, goroutines may still access the memory.
func (b *backing) free(c *deviceContext, inUse bool) error {
	return provider.Join(c.records.put(b.record), b.mem.Release(inUse))
}

// queueMemory returns n bytes for the rings of a queue. They come from the Alloc function of its
// parent domain if it has one, or else are newly mapped.
func queueMemory(op string, rings driver.Memory, n int, kind pageKind) (m *provider.Mapping, err error) {
	b, free, err := rings.Get(op, n)
	switch {
	case err != nil:
		return nil, err
	case b != nil:
		return provider.MappingOf(b, free), nil
	}
	if kind != smallPages {
		if m, err = provider.Huge(n); err == nil {
			return m, nil
		}
		if kind == hugePages {
			return nil, kernelError(op, "", err, "the environment asks for huge pages (MLX_*_ALLOC_TYPE=HUGE), "+
				"of which the system has not enough: set vm.nr_hugepages, or say PREFER_HUGE")
		}
	}
	if m, err = provider.Anon(n); err != nil {
		return nil, kernelError(op, "", err, "there is no memory for its rings")
	}
	return m, nil
}
