package summary

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/cmd/internal/doctor/peer"
)

// write writes files with the given contents, and returns their names.
func write(t *testing.T, contents map[string]string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return files
}

// text returns a document as doctor -json prints it. With mbs, the connection to the peer works.
func text(t *testing.T, host, to string, mbs float64, findings ...check.Finding) string {
	t.Helper()
	healthy := check.Worst(findings) < check.Error
	doc := document{Origin: check.Origin{Host: host, Kernel: "6.12.1"}, Healthy: &healthy, Findings: findings, Peer: to}
	if mbs > 0 {
		doc.Figures = &peer.Figures{Calls: 9, Typical: time.Duration(1e9/mbs) * time.Nanosecond, MBPerSec: mbs}
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

var (
	noModule = check.Finding{ID: "no-rdma-cm", Severity: check.Error, Seen: "no module", Why: "why", Fix: "modprobe"}
	memlock  = check.Finding{ID: "memlock", Severity: check.Warning, Seen: "64 <KiB>", Why: "why", Fix: "ulimit -l 0"}
	lost     = check.Finding{ID: "peer-rdma", Severity: check.Error, Seen: "lost", Why: "why", Fix: "nft"}
	fact     = check.Finding{ID: "gid", Seen: "a fact"}
)

// fleet returns the documents of six machines. One has none.
func fleet(t *testing.T) []string {
	return write(t, map[string]string{
		"a.json": text(t, "a", "b", 5000, fact) + text(t, "a", "c", 100, fact) + text(t, "a", "d", 0, fact, lost),
		"b.json": text(t, "b", "a", 4000, fact, memlock),
		"c.json": text(t, "c", "", 0, memlock),
		"d.json": text(t, "", "", 0, noModule, memlock),
		"e.json": "Permission denied (publickey).\n",
		"f.json": text(t, "f", "", 0, fact),
	})
}

func TestText(t *testing.T) {
	s, err := Read(fleet(t))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.Text(&out); err != nil {
		t.Fatal(err)
	}
	want := `RDMA works on 4 of 6 machines (2 with warnings), and between 3 of 4 pairs.
ERROR    d, e
WARNING  b, c

ERROR    no-document: e
         there is no document of doctor -json: invalid character 'P' looking for beginning of value
         why: doctor did not run there, or did not end
         fix: doctor -json (on the machine)

ERROR    no-rdma-cm: d
         no module
         why: why
         fix: modprobe

ERROR    peer-rdma: a to d
         lost
         why: why
         fix: nft

WARNING  memlock: b, c, d
         64 <KiB>
         why: why
         fix: ulimit -l 0

Failing pairs: a to d.
Typical round trip: median 250µs, longest 10ms (a to c).
WRITEs: median 4000 MB/s, slowest 100 MB/s (a to c).
`
	if out.String() != want || s.Healthy() {
		t.Errorf("got %s\nwant %s", &out, want)
	}
}

func TestHTML(t *testing.T) {
	s, err := Read(fleet(t))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.HTML(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<h1>RDMA works on 4 of 6 machines (2 with warnings), and between 3 of 4 pairs.</h1>`,
		`<td class="warning">warning</td><td>memlock</td><td>3: b, c, d</td><td>64 &lt;KiB&gt;<br>`,
		`<tr><th></th><th>a</th><th>b</th><th>c</th><th>d</th></tr>`,
		`<tr><th>a</th><td class="" title=""></td><td class="heat9" title="a to b: round trip`,
		`<td class="heat0" title="a to c: `, `<td class="fault" title="a to d: lost">✗</td></tr>`,
		`<tr><th>b</th><td class="heat8" title="b to a: `, `<td>f</td><td class="ok">ok</td><td>6.12.1</td>`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// TestMany checks that the page and its text are short for many machines.
func TestMany(t *testing.T) {
	contents := map[string]string{}
	for i := range maxSide + 5 {
		name := fmt.Sprintf("n%03d", i)
		contents[name+".json"] = text(t, name, "n000", 1000, memlock) + text(t, name, name, 0, lost)
	}
	s, err := Read(write(t, contents))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.Text(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "n008, n009 and 195 more\n") || strings.Count(out.String(), "\n") > 20 {
		t.Errorf("%s", &out)
	}
	// n000 tries itself once more, and has one pair.
	h := s.heatMap()
	if len(h.Rows) != maxSide || len(h.Peers) != maxSide || h.Left != 2*5 {
		t.Errorf("%d rows, %d columns, %d pairs left out", len(h.Rows), len(h.Peers), h.Left)
	}
}

// TestHostile checks that files with other contents are reported, and cannot control a terminal.
func TestHostile(t *testing.T) {
	for _, c := range []string{"", "{}", "[]", "null", "{", `{"healthy":true,"findings":[{"severity":"fatal"}]}`,
		text(t, "x", "", 0) + "{}"} {
		s, err := Read(write(t, map[string]string{"x.json": c}))
		if err != nil || s.Healthy() || len(s.Nodes) != 1 || s.Nodes[0].Name != "x" || s.Problems[0].ID != "no-document" {
			t.Errorf("%q: %+v, %v", c, s, err)
		}
	}
	evil := noModule
	evil.ID, evil.Seen, evil.Fix = "a\x1b[2Jb", "c\rd", "e\nf"
	s, err := Read(write(t, map[string]string{"x.json": text(t, "x\ay", "p\x00q", 0, evil)}))
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Problems[0]; p.ID != "a[2Jb" || p.Seen != "cd" || p.Fix != "ef" || s.Pairs[0].String() != "xy to pq" {
		t.Errorf("%+v, %v", p, s.Pairs[0])
	}
	long := strings.Repeat(" ", maxFile+1)
	_, err = Read(write(t, map[string]string{"x": long}))
	if err == nil || !strings.Contains(err.Error(), "longer than 16 MiB") {
		t.Errorf("a long file: %v", err)
	}
}
