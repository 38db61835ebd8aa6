package uverbs

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An RWQIndTable is a table of work queues from which the hash of a packet selects
// one. A QP with [RSSConfig] uses it.
type RWQIndTable struct {
	object
	size int
}

// CreateRWQIndTable creates a table of WQs: ibv_create_rwq_ind_table(3). A WQ may
// occur more than once. The number of WQs must be a power of two, at most
// RSSCaps.MaxRWQIndirectionTableSize. CreateRWQIndTable returns [ErrInvalid] for
// another number, and [ErrClosed] after Close of a WQ.
func (c *Context) CreateRWQIndTable(wqs ...*WQ) (*RWQIndTable, error) {
	const op = "create RWQ table"
	if n := len(wqs); bits.OnesCount(uint(n)) != 1 || n > 1<<uapi.IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE {
		return nil, invalid(op, c.name, "the number of WQs must be a power of two, at most 8192: "+sitoa(n))
	}
	t := &RWQIndTable{size: len(wqs)}
	t.object = object{ctx: c, life: t, kind: "RWQ table", rank: rankRWQIndTable}
	for i, q := range wqs {
		if q == nil {
			return nil, invalid(op, c.name, "WQ "+sitoa(i)+" is nil")
		}
		if q.ctx != c {
			return nil, invalid(op, c.name, q.String()+" belongs to another Context")
		}
		if !slices.Contains(t.parents, &q.object) {
			t.parents = append(t.parents, &q.object)
		}
	}
	if err := t.createWith(func() error { return t.create(wqs) }); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *RWQIndTable) create(wqs []*WQ) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	req := ioctl.BytesOf(&uapi.IbUverbsExCreateRwqIndTable{LogIndTblSize: uint32(bits.TrailingZeros(uint(len(wqs))))})
	for _, q := range wqs {
		req = binary.LittleEndian.AppendUint32(req, q.handle)
	}
	resp := ioctl.WriteExTable[uapi.IbUverbsExCreateRwqIndTableResp](
		cmd, uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL, req)
	if err := t.ctx.dev.Do(cmd); err != nil {
		return t.ctx.explainLimit("create RWQ table", err, "the number of WQs", len(wqs),
			func(a *DeviceAttr) int { return a.RSS.MaxRWQIndirectionTableSize })
	}
	t.handle, t.number = resp.IndTblHandle, resp.IndTblNum
	return nil
}

func (t *RWQIndTable) destroy() error {
	return t.destroyHandle(uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY,
		uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE)
}

// Context returns the context of t.
func (t *RWQIndTable) Context() *Context { return t.ctx }

// Size returns the number of entries.
func (t *RWQIndTable) Size() int { return t.size }

// Close destroys the table: ibv_destroy_rwq_ind_table(3). It returns [ErrBusy]
// while a QP uses the table. Close is idempotent.
func (t *RWQIndTable) Close() error { return t.close() }
