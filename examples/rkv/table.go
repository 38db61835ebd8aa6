package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"hash/fnv"
	"sync"

	"github.com/goverbs/goverbs/rdma"
)

const (
	slots    = 4096
	slotSize = 1024 // CRC-32, length and encoded record
	probes   = 8    // slots in which a key may be
)

var (
	le          = binary.LittleEndian
	errNotFound = errors.New("not found")
	errFull     = errors.New("no slot is free for the key")
	errLength   = errors.New("the key is empty, or key and value are too long")
)

type record struct {
	Key     string
	Value   []byte
	Version uint64
}

func (r *record) encode() []byte {
	j, _ := json.Marshal(r) // of such a type, it never fails
	b := le.AppendUint32(nil, crc32.ChecksumIEEE(j))
	return append(le.AppendUint32(b, uint32(len(j))), j...)
}

// decode returns the record in a slot. An empty slot has an empty one. Torn means that the slot is being written.
func decode(b []byte) (r record, torn bool) {
	if len(b) < 8 {
		return r, true
	}
	crc, n, j := le.Uint32(b), int(le.Uint32(b[4:])), b[8:]
	if crc == 0 && n == 0 {
		return r, false
	}
	return r, n > len(j) || crc32.ChecksumIEEE(j[:n]) != crc || json.Unmarshal(j[:n], &r) != nil
}

// home returns where the i-th slot for a key is.
func home(key string, i int) int {
	h := fnv.New64a()
	h.Write([]byte(key))
	return (int(h.Sum64()%slots) + i) % slots * slotSize
}

// A table is the server's side of the slots.
type table struct {
	*rdma.Region
	mu sync.Mutex
}

// put stores the record of a request. It returns the version, or 0 if that is not possible.
func (t *table) put(request []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, torn := decode(request)
	for i := 0; i < probes && !torn && r.Key != ""; i++ {
		b := t.Bytes()[home(r.Key, i):][:slotSize]
		if old, _ := decode(b); old.Key == "" || old.Key == r.Key {
			r.Version = old.Version + 1
			if e := r.encode(); len(e) <= len(b) {
				copy(b, e)
				return le.AppendUint64(nil, r.Version)
			}
			break
		}
	}
	return le.AppendUint64(nil, 0)
}
