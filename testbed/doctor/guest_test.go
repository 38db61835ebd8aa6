//go:build vm

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A report is what doctor -json prints.
type report struct {
	Healthy  bool
	Findings []finding
	Figures  *struct{ Calls, Writes int }
}

type finding struct{ ID, Severity, Seen, Why, Fix string }

// find returns the finding with an id that is not a fact.
func (r report) find(id string) *finding {
	for _, f := range r.Findings {
		if f.ID == id && f.Severity != "ok" {
			return &f
		}
	}
	return nil
}

// A patient is a guest with doctor.
type patient struct {
	*vm.Guest
	doctor string
}

// newPatient boots a guest.
func newPatient(t *testing.T, c vm.Config) *patient {
	t.Helper()
	return install(t, vm.Start(t, c))
}

func install(t *testing.T, g *vm.Guest) *patient {
	t.Helper()
	path, err := g.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/cmd/doctor", "", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	return &patient{g, path}
}

// run runs a command line, which must succeed.
func (p *patient) run(t *testing.T, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := p.CommandContext(ctx, "sh", "-c", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// examine runs doctor -json. limit may change the command.
func (p *patient) examine(t *testing.T, limit func(*vm.Cmd), args ...string) (r report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := p.CommandContext(ctx, p.doctor, append([]string{"-json"}, args...)...)
	if limit != nil {
		limit(cmd)
	}
	out, err := cmd.Output()
	var exit *vm.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("doctor %v: %v\n%s", args, err, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Healthy != (err == nil) {
		t.Errorf("healthy is %v, and the exit status is that of %v", r.Healthy, err)
	}
	return r
}

// finds checks that doctor has a finding, and returns it.
func (p *patient) finds(t *testing.T, id string, limit func(*vm.Cmd), args ...string) *finding {
	t.Helper()
	r := p.examine(t, limit, args...)
	f := r.find(id)
	if f == nil {
		t.Fatalf("no finding %s in %+v", id, r)
	}
	t.Logf("%+v", *f)
	return f
}

// mended checks that doctor does not have a finding any more.
func (p *patient) mended(t *testing.T, id string, args ...string) {
	t.Helper()
	if f := p.examine(t, nil, args...).find(id); f != nil {
		t.Errorf("still %+v", *f)
	}
}

// command returns the command of a fix, without what follows in parentheses.
func command(f *finding) string {
	line, _, _ := strings.Cut(f.Fix, " (")
	return line
}
