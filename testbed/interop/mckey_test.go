//go:build vm

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A mckeyCase is a receiver of a multicast group and a sender to it, with their
// options.
type mckeyCase struct {
	name             string
	receiver, sender string
	ids              int // number of ids that join at each end
	count            int // messages per id
}

var mckeyCases = []mckeyCase{
	{"bound", "-b " + address, "-b " + address, 1, 10},
	{"routed", "", "", 1, 10},
	{"send_only", "-b " + address, "-o -b " + address, 1, 10},
	{"many", "-c 3 -S 999 -b " + address, "-c 3 -S 999 -b " + address, 3, 4},
}

// A mckeyRun is a case with its programs.
type mckeyRun struct {
	mckeyCase
	pair
	group string
	r, s  *program.Process
}

func (h *host) testMckey(t *testing.T) {
	h.runMckeys(t, goPairs[:2])
	t.Run("alike", func(t *testing.T) {
		skipAlike(t, pairs[0], false)
		h.runMckeys(t, []pair{pairs[0], pairs[3]})
	})
	t.Run("ipv6", h.mckeyIPv6)
}

// runMckeys runs all cases concurrently, because each sender waits three seconds before it sends.
func (h *host) runMckeys(t *testing.T, pairs []pair) {
	var runs []*mckeyRun
	for _, c := range mckeyCases {
		for _, p := range pairs {
			r := &mckeyRun{mckeyCase: c, pair: p, group: fmt.Sprintf("239.7.0.%d", len(runs)+1)}
			r.r = h.mckey(t, p.server, "-m %s -C %d %s", r.group, c.count, c.receiver)
			runs = append(runs, r)
		}
	}
	for _, r := range runs {
		if !r.r.Stdout.AwaitTimes(joined(r.group), r.ids) {
			t.Fatalf("the receiver does not join:\n%v", r.r)
		}
		r.s = h.mckeySender(t, r)
	}
	for _, r := range runs {
		t.Run(fmt.Sprintf("%s/%s-receiver/%s-sender", r.name, r.server, r.client), func(t *testing.T) {
			if r.client == cSide {
				h.resend(t, r)
			}
			r.check(t)
		})
	}
}

// mckey starts an mckey with a low priority, because C receivers poll without a
// pause and would keep the kernel from sending.
func (h *host) mckey(t *testing.T, s side, format string, args ...any) *program.Process {
	t.Helper()
	return h.startNicely(t, slices.Concat([]string{h.path(s, "mckey")}, strings.Fields(fmt.Sprintf(format, args...))))
}

// mckeySender starts a sender. The C sender closes its QP immediately after posting,
// which discards messages that have not been sent yet. It is therefore slowed down,
// and sends more messages than needed.
func (h *host) mckeySender(t *testing.T, r *mckeyRun) *program.Process {
	t.Helper()
	if r.client == goSide {
		return h.mckey(t, goSide, "-s -m %s -C %d %s", r.group, r.count, r.sender)
	}
	return h.startNicely(t, strings.Fields(fmt.Sprintf("strace -qq -e trace=write -o /dev/null mckey -s -m %s -C %d %s",
		r.group, 20*r.count, r.sender)))
}

// resend runs the C sender again, at most a few times, while the receiver waits for
// messages. On a busy machine most messages of a run can be lost.
func (h *host) resend(t *testing.T, r *mckeyRun) {
	t.Helper()
	for range 5 {
		if r.s.Wait() != nil {
			return // check reports it
		}
		select {
		case <-r.r.Ended:
			return
		case <-time.After(5 * time.Second):
			r.s = h.mckeySender(t, r)
		}
	}
}

// startNicely starts a command with a low priority, on a terminal, so that its
// output is not buffered.
func (h *host) startNicely(t *testing.T, command []string) *program.Process {
	t.Helper()
	return program.StartOn(t, h.guest, &program.Terminal, "nice", append([]string{"-n", "19"}, command...)...)
}

// joined returns the line that mckey prints for each id that has joined.
func joined(group string) string { return "mckey: joined dgid: ::ffff:" + group + " mlid 0x0 sl 0\n" }

// check waits until both programs have ended and checks that all messages were sent
// and received.
func (r *mckeyRun) check(t *testing.T) {
	receiverErr, senderErr := program.Finish(r.r, r.s)
	if receiverErr != nil || senderErr != nil {
		t.Fatalf("receiver: %v\n%v\nsender: %v\n%v", receiverErr, r.r, senderErr, r.s)
	}
	const joining, end = "mckey: joining\n", "data transfers complete\ntest complete\nreturn status 0\n"
	join := joining + strings.Repeat(joined(r.group), r.ids)
	cmEnd{out: "mckey: starting server\n" + join + "receiving data transfers\n" + end}.check(t, r.r)
	cmEnd{out: "mckey: starting client\n" + join + "initiating data transfers\n" + end}.check(t, r.s)
}

// mckeyIPv6 checks that both programs fail with ENOTSUPP, for which the C library has
// no text. The kernel supports no IPv6 groups on RoCE v2, the only protocol of rxe.
func (h *host) mckeyIPv6(t *testing.T) {
	for side, says := range map[side]string{cSide: "mckey: failure joining: Unknown error 524",
		goSide: "RoCE v2 has no IPv6 groups: use an IPv4 group (ENOTSUPP)"} {
		p := h.mckey(t, side, "-m ff0e::7 -b %s", address6)
		if err := p.Wait(); err == nil || p.Status() < 0 || !strings.Contains(p.Stdout.String(), says) {
			t.Errorf("no %q:\n%v: %v", says, p, err)
		}
	}
}
