package mlx5

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// TestPinnedQueues checks that the error of a create command that the kernel refuses has the bytes that it had to pin:
// those of the ring, and the page of the doorbell record.
func TestPinnedQueues(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1}, nil)
	c := b.ctx
	c.uars.plain = &register{reg: registerOf(b.regs)}
	refused := func(_, _ []byte) (driver.Reply, error) { return driver.Reply{}, unix.ENOMEM }
	queues := map[string]func(driver.Command) (*provider.Mapping, func() error, error){
		"CQ": func(run driver.Command) (*provider.Mapping, func() error, error) {
			p, _, err := c.CreateCQ(&driver.CQConfig{Entries: 1<<12 - 1},
				func(req, resp []byte, _ ...driver.Attr) (driver.Reply, error) { return run(req, resp) })
			if err != nil {
				return nil, nil, err
			}
			return p.(*cq).mem, func() error { return p.Retire(true) }, nil
		},
		"QP": func(run driver.Command) (*provider.Mapping, func() error, error) {
			cfg := &uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1 << 10, MaxSendSGE: 1}
			p, _, err := c.CreateQP(cfg, provider.QPEnv{}, run)
			if err != nil {
				return nil, nil, err
			}
			return p.(*qp).mem, func() error { return p.Retire(true) }, nil
		},
		"SRQ": func(run driver.Command) (*provider.Mapping, func() error, error) {
			p, _, err := c.CreateSRQ(&driver.SRQConfig{MaxWR: 1<<12 - 1, MaxSGE: 1}, run)
			if err != nil {
				return nil, nil, err
			}
			return p.(*srq).mem, p.Retire, nil
		},
	}
	for name, create := range queues {
		mem, retire, err := create(noCommand)
		check(t, err)
		want := len(mem.Bytes()) + os.Getpagesize()
		check(t, retire())
		_, _, err = create(refused)
		var p *driver.PinnedError
		if !errors.As(err, &p) || p.Bytes != want || !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %v (%T), want a PinnedError of %d bytes", name, err, err, want)
		}
	}
	q, _, err := c.CreateCQ(&driver.CQConfig{Entries: 15}, noCQCommand)
	check(t, err)
	var p *driver.PinnedError
	again := func(_ int, in, out []byte) (driver.Reply, error) { return refused(in, out) }
	if _, err := q.Resize(1<<12-1, again); !errors.As(err, &p) || p.Bytes != 64<<12+os.Getpagesize() {
		t.Errorf("resize: %v (%T)", err, err)
	}
	check(t, q.Retire(true))
}
