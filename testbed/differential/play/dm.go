package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// deviceMemory is memory of the device with its MR.
type deviceMemory struct {
	*uverbs.DM
	mr *uverbs.MR
}

func (d *deviceMemory) close() error { return errors.Join(d.mr.Close(), d.Close()) }

func (p *player) dm() (err error) {
	d := one(p, p.dms[:])
	if d.DM, err = p.dev.AllocDM(uverbs.DMConfig{Size: p.nextArg()}); err != nil {
		return err
	}
	d.mr, err = p.pd.RegDM(d.DM, 0, d.Size(),
		uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead|uverbs.RemoteAtomic)
	return err
}

func (p *player) dmPut() error {
	d, to, from := one(p, p.dms[:]), p.nextArg(), p.nextArg()
	_, err := d.WriteAt(p.mr.Bytes()[from:][:p.nextArg()], int64(to))
	return err
}

func (p *player) dmGet() error {
	d, from, to := one(p, p.dms[:]), p.nextArg(), p.nextArg()
	_, err := d.ReadAt(p.mr.Bytes()[to:][:p.nextArg()], int64(from))
	return err
}

func (p *player) dmOp() error {
	d, op := one(p, p.dms[:]), mlx5.DMOp(p.nextArg())
	a, err := mlx5.MapDMOp(d.DM, op)
	if err != nil {
		return err
	}
	b := []byte{1}
	if op == mlx5.DMIncrement {
		return a.Store(b, 0)
	}
	err = a.Load(b, 0)
	fmt.Printf("old %d\n", b[0])
	return err
}

func (p *player) dmwr() error {
	d := one(p, p.dms[:])
	local, remote := p.mr, d.mr
	if p.nextArg() != 0 {
		local, remote = remote, local
	}
	w := p.request()
	w.RemoteAddr = remote.Addr() + uint64(p.nextArg())
	w.RKey = remote.RKey()
	if w.Opcode == uverbs.OpFetchAdd {
		w.CompareAdd = 5
	}
	off := p.nextArg()
	w.SGL = []uverbs.SGE{local.SGE(off, p.nextArg())}
	p.batch = append(p.batch, w)
	return nil
}
