package engine

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// minSegment is the minimum segment size.
const minSegment = 64

// A stream is a part of a TCP stream that is being segmented.
type stream struct {
	wqe        *sendWQE
	headers    parsed
	head, data []byte
	size, at   int  // of a segment; bytes sent so far
	l3, l4     bool // the WQE requests these checksums
}

// cut begins to segment a part of a TCP stream, of a WQE with the Ethernet segment e. The frames are sent in turns.
func (q *SQ) cut(w *sendWQE, e, frame []byte, header int) transport.Syndrome {
	p, size := parseFrame(frame), int(prm.EthMSS.Get(e))
	if size < minSegment || p.l4 == 0 || p.proto != protoTCP || p.payload != header && header != 0 {
		return transport.LocalQPOp
	}
	q.stream = &stream{wqe: w, headers: p, head: frame[:p.payload], data: frame[p.payload:], size: size,
		l3: prm.EthL3Checksum.Is(e), l4: prm.EthL4Checksum.Is(e)}
	return transport.OK
}

// sendNext sends the next frame of the stream. The last one completes its WQE.
func (q *SQ) sendNext() {
	s, c := transport.Flushed, q.stream
	if q.state == QueueReady {
		if s = q.transmit(c.next()); s == transport.OK && c.at < len(c.data) {
			return
		}
	}
	q.stream = nil
	q.finish(c.wqe, s)
}

// next returns the next frame.
func (c *stream) next() []byte {
	p, i := &c.headers, c.at
	c.at += c.size
	f := append(append([]byte(nil), c.head...), c.data[i:min(c.at, len(c.data))]...)
	binary.BigEndian.PutUint32(f[p.l4+4:], be32(c.head[p.l4+4:])+uint32(i))
	if c.at < len(c.data) {
		f[p.l4+13] &^= 0x09 // FIN and PSH only in the last segment
	}
	if i > 0 {
		f[p.l4+13] &^= 0x80 // CWR only in the first segment
	}
	if p.v6 {
		binary.BigEndian.PutUint16(f[p.l3+4:], uint16(len(f)-p.l3-40))
	} else {
		binary.BigEndian.PutUint16(f[p.l3+2:], uint16(len(f)-p.l3))
		binary.BigEndian.PutUint16(f[p.l3+4:], be16(c.head[p.l3+4:])+uint16(i/c.size))
	}
	checksums(f, c.l3, c.l4)
	return f
}
