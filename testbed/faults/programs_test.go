//go:build vm

package faults

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// at returns an address with an unused port.
func (p *pair) at() string {
	p.port++
	return p.ends[0].address + ":" + strconv.Itoa(p.port)
}

// sends returns the number of SENDs, and of rounds of WRITE and READ, of each end.
func (p *pair) sends() int { return p.scale.messages / 4 }

// begin starts our programs, the server first.
func (p *pair) begin(t *testing.T, env []string, args ...string) (client, server *process) {
	t.Helper()
	at := p.at()
	args = append([]string{"-n", strconv.Itoa(p.sends()), "-limit", p.scale.limit.String()}, args...)
	limit := p.scale.limit + 30*time.Second
	server = p.ends[0].start(t, limit, env, p.ends[0].peer, append(args, "-serve", at)...)
	server.event(t, Listening, 1)
	client = p.ends[1].start(t, limit, env, p.ends[1].peer, append(args, "-call", at)...)
	return client, server
}

// talk runs our programs until both have finished.
func (p *pair) talk(t *testing.T, env []string, args ...string) (client, server *Account) {
	t.Helper()
	c, s := p.begin(t, env, args...)
	client, server = c.account(t), s.account(t)
	p.balance(t, client, server)
	return client, server
}

// balance compares the accounts of both ends.
func (p *pair) balance(t *testing.T, client, server *Account) {
	t.Helper()
	for _, a := range []*Account{client, server} {
		if a.Received != p.sends() || a.Rounds != p.sends() {
			t.Errorf("%d messages and %d rounds arrived, want %d: %+v", a.Received, a.Rounds, p.sends(), a)
		}
		if a.Stalls > 0 {
			t.Errorf("requests did not complete: %+v", a)
		}
	}
}

// hang is the time without progress after which a C program is considered hung.
const hang = 30 * time.Second

// pingpong runs C's ibv_rc_pingpong under the same faults and returns the result.
func (p *pair) pingpong(t *testing.T) string {
	t.Helper()
	c, s := p.beginPingpong(t, p.scale.iters)
	return verdict(t, "ibv_rc_pingpong", c, s, "invalid data")
}

func (p *pair) beginPingpong(t *testing.T, iters int) (client, server *process) {
	t.Helper()
	_, port, _ := strings.Cut(p.at(), ":")
	args := []string{"-d", "rxe0", "-c", "-s", "1024", "-n", strconv.Itoa(iters), "-p", port, "-g"}
	server = p.ends[0].start(t, p.scale.limit, nil, "ibv_rc_pingpong", append(args, p.ends[0].gid)...)
	p.ends[0].listens(t, port)
	client = p.ends[1].start(t, p.scale.limit, nil, "ibv_rc_pingpong", append(args, p.ends[1].gid, p.ends[0].address)...)
	return client, server
}

// rping is like pingpong with C's rping, which uses librdmacm.
func (p *pair) rping(t *testing.T) string {
	t.Helper()
	args := []string{"-V", "-S", "1000", "-C", strconv.Itoa(max(p.scale.iters/10, 20)), "-p",
		strings.Split(p.at(), ":")[1], "-a", p.ends[0].address}
	s := p.ends[0].start(t, p.scale.limit, nil, "rping", append(args, "-s")...)
	p.ends[0].output(t, "timeout", "20", "sh", "-c", "until rdma resource show cm_id | grep -q 'state LISTEN'; do :; done")
	c := p.ends[1].start(t, p.scale.limit, nil, "rping", append(args, "-c")...)
	return verdict(t, "rping", c, s, "data mismatch")
}

// listens waits until a program listens on a TCP port.
func (e *end) listens(t *testing.T, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Listening(t, e.guest, n).Wait(); err != nil {
		t.Fatal(err)
	}
}

// verdict waits for both ends of a C program. When one has ended, the other must end
// within a time limit.
func verdict(t *testing.T, name string, client, server *process, corrupt string) string {
	t.Helper()
	began := time.Now()
	first, other := client, server
	select {
	case <-client.done:
	case <-server.done:
		first, other = server, client
	}
	select {
	case <-other.done:
	case <-time.After(hang):
		other.stop()
	}
	said := make([]string, 0, 2)
	for _, p := range []*process{first, other} {
		switch err := p.wait(); {
		case regexp.MustCompile(corrupt).MatchString(p.String()):
			said = append(said, "corrupt data")
		case errors.Is(err, errHangs) || errors.Is(err, errStopped):
			said = append(said, "hangs")
		case err != nil:
			said = append(said, "fails")
		}
	}
	if len(said) == 0 {
		return fmt.Sprintf("%s: good, %.1f s", name, time.Since(began).Seconds())
	}
	t.Logf("C under the same script:\n%v\n%v", client, server)
	return name + ": " + strings.Join(said, ", the other end ")
}

// A row is a row of the tables in docs/reliability.md.
type row struct {
	fault    string
	injected int
	accounts []*Account
	counters map[string]int
	c        []string // results of the C programs
}

// record adds a row to the table.
func (p *pair) record(t *testing.T, r row) {
	t.Helper()
	p.rows = append(p.rows, r)
	t.Log(r)
}

func (r row) String() string {
	var sum Account
	for _, a := range r.accounts {
		sum.Received += a.Received
		sum.Rounds += a.Rounds
		sum.Failed += a.Failed
		sum.Resent += a.Resent
		sum.Recovered += a.Recovered
		sum.QuietMS = max(sum.QuietMS, a.QuietMS)
		sum.Seconds = max(sum.Seconds, a.Seconds)
	}
	return fmt.Sprintf("| %s | %d + %d | %d | %d / %d / %d | %d | %d | %d | %.1f | %s |", r.fault, sum.Received,
		sum.Rounds, r.injected,
		r.counters["completer_retry_err"], r.counters["out_of_seq_request"], r.counters["duplicate_request"],
		sum.Failed, sum.Recovered, sum.QuietMS, sum.Seconds, strings.Join(r.c, "; "))
}

const tableHead = "| fault | messages + rounds | faults | retries / out of sequence / duplicates, by rxe's counters" +
	" | requests failed | sessions recovered | longest silence, ms | seconds | C |\n" +
	"|---|---|---|---|---|---|---|---|---|"

// table prints the table for docs/reliability.md.
func (p *pair) table(t *testing.T) {
	var b strings.Builder
	for _, r := range p.rows {
		fmt.Fprintln(&b, r)
	}
	t.Logf("Linux %s:\n%s\n%s", p.ends[0].guest.Release(), tableHead, b.String())
}
