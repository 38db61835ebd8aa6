package kv

import (
	"context"
	"errors"
	"slices"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// ValueSize is the size of a value in bytes.
const ValueSize = 40

// A Record is a write of a key.
type Record struct {
	Key   uint64
	Value [ValueSize]byte
}

// A Node is a replica. Only one goroutine at a time may use it.
type Node struct {
	name     string
	replicas int // of the cluster, this one included
	ctx      *uverbs.Context
	pd       *uverbs.PD
	cq       *uverbs.CQ
	wcs      [16]uverbs.WC

	links     map[uint32]*Link // that are not broken, by QPN
	log       []Record
	acked     map[string]int // how many records each backup has
	committed int
	values    map[uint64]int // index in the log, plus 1, of the last committed write of each key

	slots int // sends of a link that may be in flight; tests change it
}

// maxLinks bounds the number of links of a node.
const maxLinks = 8

// Open opens the RDMA device of that name, or the first one if the name is empty, for a node of a
// cluster. Its name must be unique in the cluster.
func Open(device, name string, replicas int) (_ *Node, err error) {
	n := &Node{name: name, replicas: replicas, links: map[uint32]*Link{}, acked: map[string]int{},
		values: map[uint64]int{}, slots: window}
	if n.ctx, err = uverbs.Open(device); err != nil {
		return nil, err
	}
	if n.pd, err = n.ctx.AllocPD(); err == nil {
		n.cq, err = n.ctx.CreateCQ(uverbs.CQConfig{Entries: maxLinks * 4 * window})
	}
	if err != nil {
		return nil, errors.Join(err, n.ctx.Close())
	}
	return n, nil
}

// Close closes the node and its links.
func (n *Node) Close() error {
	var errs []error
	for _, l := range n.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, n.ctx.Close())...)
}

// Put appends a write to the log of the primary, and returns the length of the log. The write is
// committed when Committed has reached that.
func (n *Node) Put(key uint64, value [ValueSize]byte) int {
	n.log = append(n.log, Record{key, value})
	for _, l := range n.sorted() {
		l.sendRecords()
	}
	n.commit()
	return len(n.log)
}

// Get returns the last committed value of a key. Only the primary knows what is committed.
func (n *Node) Get(key uint64) (value [ValueSize]byte, ok bool) {
	if at := n.values[key]; at > 0 {
		return n.log[at-1].Value, true
	}
	return value, false
}

// Committed returns how many records of the log are committed.
func (n *Node) Committed() int { return n.committed }

// Log returns the records that the node has. It must not be changed.
func (n *Node) Log() []Record { return n.log }

// commit computes how many records a majority has.
func (n *Node) commit() {
	have := []int{len(n.log)}
	for _, k := range n.acked {
		have = append(have, k)
	}
	slices.Sort(have)
	slices.Reverse(have)
	if majority := n.replicas/2 + 1; len(have) >= majority {
		for ; n.committed < have[majority-1]; n.committed++ {
			n.values[n.log[n.committed].Key] = n.committed + 1
		}
	}
}

// Step processes the completions that are there, and reports whether there were any. A link that
// fails is closed: see [Link.Err].
func (n *Node) Step() (bool, error) {
	k, err := n.cq.Poll(n.wcs[:])
	n.process(n.wcs[:k])
	return k > 0, err
}

// Wait is like Step, but waits until there are completions.
func (n *Node) Wait(ctx context.Context) error {
	k, err := n.cq.PollWait(ctx, n.wcs[:])
	n.process(n.wcs[:k])
	return err
}

func (n *Node) process(wcs []uverbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		l := n.links[wc.QPNum]
		if l == nil { // closed by an earlier completion
			continue
		}
		if err := l.process(wc); err != nil {
			l.fail(err)
		}
	}
	n.commit()
}

// sorted returns the links in order of creation.
func (n *Node) sorted() []*Link {
	var all []*Link
	for _, l := range n.links {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *Link) int { return a.number - b.number })
	return all
}
