//go:build vm

package faults

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// wants sends a command, and checks that the reply has all parts, in upper or lower case.
func (p *patient) wants(v *program.Dialogue, line string, parts ...string) {
	p.Helper()
	said := v.Say(line)
	for _, part := range parts {
		if !strings.Contains(strings.ToLower(said), strings.ToLower(part)) {
			p.Errorf("%s: %s, want %s", line, said, part)
		}
	}
}

// dc makes requests of a DCI fail, and checks the status, that the DCI is in ERR, that later requests are flushed, and
// that it works again after RESET.
func (p *patient) dc(v *program.Dialogue) {
	v.Do("star")
	dci, err := strconv.ParseUint(v.Value("dci"), 10, 32)
	p.must(err)
	fails := func(line, want string) {
		p.Helper()
		v.Want("write 0", "= ok, RTS")
		p.wants(v, line, want)
		p.wants(v, "write 1", "flushed", "(vendor 0xf9), ERR")
		v.Want("recover", "= 0")
		v.Want("write 1", "= ok, RTS")
	}
	fails("write 0 0 key", "retry count exceeded")
	fails("write 0 0 rkey", "remote access error")
	for s, want := range map[transport.Syndrome]string{
		transport.LocalQPOp: "local QP operation error", transport.BadResponse: "bad response",
		transport.RemoteAborted: "remote abort", 0x7f: "general error",
	} {
		p.must(p.c.InjectCompletion("connectx0", uint32(dci), s, 0x51, 1, 1))
		fails("write 0", want)
	}
}

// dct destroys a DCT under traffic. The traffic ends with a typed error, the other DCT is not affected, and nothing is
// left. A DCT whose destruction is refused stays usable or can be closed again.
func (p *patient) dct(v *program.Dialogue) {
	v.Do("star")
	v.Want("write 0", "= ok, RTS")
	before := p.objects()
	for range 5 {
		v.Do("flow")
		v.Do("destroy 0")
		p.wants(v, "flowed", "request: ")
		if flushed, err := strconv.Atoi(v.Value("recover")); err != nil || flushed == 0 {
			p.Errorf("%d requests were flushed, %v", flushed, err)
		}
		v.Want("write 1", "= ok, RTS")
		v.Do("replace 0")
		v.Want("write 0", "= ok, RTS")
		if after := p.objects(); after != before {
			p.Errorf("there are %+v, it was %+v", after, before)
		}
	}
	const drain = 0x712
	p.must(p.c.FailCommand("connectx0", drain, failedStatus, failedSyndrome, 0, 1))
	p.wants(v, "destroy 0", "! uverbs: ")
	v.Want("write 0", "= ok, RTS")
	v.Do("destroy 0")
	v.Do("replace 0")
	v.Want("write 0", "= ok, RTS")
	if after := p.objects(); after != before {
		p.Errorf("after a refused destruction there are %+v, it was %+v", after, before)
	}
}

// streams makes streams of a DCI fail, and resets them. The others are not affected until as many have failed as
// the DCI permits.
func (p *patient) streams(v *program.Dialogue) {
	const n = 4
	v.Do(fmt.Sprintf("star %d", n))
	p.wants(v, "stream 1", "! uverbs: reset stream") // it has not failed
	for range 3 {
		p.wants(v, "write 0 1 rkey", "remote access error", "), RTS")
		p.wants(v, "write 0 1", "flushed", "(vendor 0xf9), RTS")
		v.Want("write 0 2", "= ok, RTS")
		v.Do("stream 1")
		v.Want("write 0 1", "= ok, RTS")
	}
	const rts2rts = 0x505
	p.wants(v, "write 0 1 key", "retry count exceeded")
	p.must(p.c.FailCommand("connectx0", rts2rts, failedStatus, failedSyndrome, 0, 1))
	p.wants(v, "stream 1", "! uverbs: reset stream")
	p.wants(v, "write 0 1", "flushed")
	v.Do("stream 1")
	v.Want("write 0 1", "= ok, RTS")
	for i := range n {
		want := "RTS"
		if i == n-1 {
			want = "ERR"
		}
		p.wants(v, fmt.Sprintf("write 0 %d rkey", i), "remote access error", "), "+want)
	}
	p.wants(v, "stream 1", "! uverbs: reset stream") // the DCI is in ERR
	v.Want("recover", "= 0")
	v.Want("write 0 1", "= ok, RTS")
}

// dcCommands makes commands fail during the creation of DCIs, DCTs, device memory and regions of it.
func (p *patient) dcCommands(v *program.Dialogue) {
	v.Do("star")
	for _, x := range []refusal{
		{"dci", 0x500, 1}, {"dci", 0x502, 1}, {"dci", 0x503, 1}, {"dci", 0x504, 1}, {"dct", 0x710, 1},
		{"dm", 0x205, 1}, {"regdm", 0x205, 1}, {"regdm", 0x200, 1},
	} {
		p.refuse(v, x)
	}
}
