package ether

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// An RWQIndTable is a table of work queues from which the hash of a packet selects
// one. A QP of [CreateRSSQP] uses it.
type RWQIndTable struct {
	ctx  *uverbs.Context
	life driver.Extension
	size int
}

// CreateRWQIndTable creates a table of WQs: ibv_create_rwq_ind_table(3). A WQ may
// occur more than once. The number of WQs must be a power of two, at most
// RSSCaps.MaxRWQIndirectionTableSize. CreateRWQIndTable returns uverbs.ErrInvalid for
// another number, and uverbs.ErrClosed after Close of a WQ.
func CreateRWQIndTable(c *uverbs.Context, wqs ...*WQ) (*RWQIndTable, error) {
	const op = "create RWQ table"
	if n := len(wqs); bits.OnesCount(uint(n)) != 1 || n > 1<<uapi.IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE {
		return nil, invalid(op, c.Name(), "the number of WQs must be a power of two, at most 8192: "+strconv.Itoa(n))
	}
	var parents []any
	for i, q := range wqs {
		if q == nil {
			return nil, invalid(op, c.Name(), "WQ "+strconv.Itoa(i)+" is nil")
		}
		if q.ctx != c {
			return nil, invalid(op, c.Name(), q.String()+" belongs to another Context")
		}
		if !slices.Contains(parents, any(q.life)) {
			parents = append(parents, q.life)
		}
	}
	t := &RWQIndTable{ctx: c, size: len(wqs)}
	var err error
	t.life, err = driver.Extend(c, op, driver.ExtensionConfig{Kind: "RWQ table", Rank: driver.AfterQPs, Parents: parents,
		Create: func(e driver.Extension) (handle uint32, err error) {
			t.life = e
			err = driver.WithContext(c, op, func(dev *ioctl.Device, _ any) error {
				handle, err = t.create(dev, e, wqs)
				return err
			})
			return handle, explained(err, func(err error) string { return explainTable(c, wqs, err) })
		},
		Destroy: func() error { return t.destroy() },
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *RWQIndTable) create(dev *ioctl.Device, e driver.Extension, wqs []*WQ) (handle uint32, err error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	req := ioctl.BytesOf(&uapi.IbUverbsExCreateRwqIndTable{LogIndTblSize: uint32(bits.TrailingZeros(uint(len(wqs))))})
	for _, q := range wqs {
		req = binary.LittleEndian.AppendUint32(req, driver.HandleOf(q.life))
	}
	resp := ioctl.WriteExTable[uapi.IbUverbsExCreateRwqIndTableResp](
		cmd, uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL, req)
	if err := dev.Do(cmd); err != nil {
		return 0, err
	}
	e.Created(resp.IndTblHandle, resp.IndTblNum)
	return resp.IndTblHandle, nil
}

// explainTable explains why the kernel refused a table.
func explainTable(c *uverbs.Context, wqs []*WQ, err error) string {
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOMEM) {
		return ""
	}
	if a, qerr := QueryDevice(c); qerr == nil {
		if text := tooMuch(request{"the number of WQs", len(wqs), a.RSS.MaxRWQIndirectionTableSize}); text != "" {
			return text
		}
	}
	if errors.Is(err, unix.ENOMEM) {
		return driver.NoObjectLeft
	}
	return ""
}

func (t *RWQIndTable) destroy() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY)
	cmd.Handle(uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, driver.HandleOf(t.life))
	return t.life.DestroyCommand(cmd)
}

// Context returns the context of t.
func (t *RWQIndTable) Context() *uverbs.Context { return t.ctx }

func (t *RWQIndTable) String() string { return t.life.String() }

// Size returns the number of entries.
func (t *RWQIndTable) Size() int { return t.size }

// Close destroys the table: ibv_destroy_rwq_ind_table(3). It returns uverbs.ErrBusy
// while a QP uses the table. Close is idempotent.
func (t *RWQIndTable) Close() error { return t.life.Close() }
