package ctogo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const document = "docs/c-to-go.md"

// A row is a row of a table.
type row struct {
	section string // the "##" that it is under
	line    int
	c       []string
	goForm  string // the cell of the Go form
	note    string
}

var (
	quoted  = regexp.MustCompile("`([^`]*)`")
	goName  = regexp.MustCompile(`^([a-z]\w*)\.[A-Z][\w.]*$`)
	promise = regexp.MustCompile(`(?i)\b(planned|to do|todo|tbd|later|soon|not yet|will be)\b`)
)

func quotes(s string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(s, -1) {
		all = append(all, m[1])
	}
	return all
}

// rows parses the tables of the document.
func rows(t *testing.T, text string) (all []row) {
	t.Helper()
	section, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if s, ok := strings.CutPrefix(line, "## "); ok {
			section = s
		}
		if !strings.HasPrefix(line, "|") || line == "| C | Go | note |" || line == "|---|---|---|" {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			t.Errorf("line %d: a row must have the cells C, Go and note", n)
			continue
		}
		all = append(all, row{section, n, quotes(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
	}
	return all
}

func read(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEachFunctionHasARow compares the C column with the functions of the libraries.
func TestEachFunctionHasARow(t *testing.T) {
	all := rows(t, read(t))
	for _, l := range libraries {
		listed, seen := l.symbols(t), map[string]int{}
		for _, r := range all {
			if r.section != l.name {
				continue
			}
			for _, c := range r.c {
				if listed[c] == "" {
					t.Errorf("line %d: %s has no %s", r.line, l.name, c)
				}
				if seen[c] != 0 {
					t.Errorf("lines %d and %d: %s twice", seen[c], r.line, c)
				}
				seen[c] = r.line
			}
		}
		for c := range listed {
			if seen[c] == 0 {
				t.Errorf("%s has no row under %q", c, "## "+l.name)
			}
		}
	}
}

// TestEachRowHasAGoForm checks that the names in the Go column exist, and that rows
// without a name have a reason.
func TestEachRowHasAGoForm(t *testing.T) {
	known := load(t)
	for _, r := range rows(t, read(t)) {
		if len(r.c) == 0 {
			t.Errorf("line %d: names no C function", r.line)
		}
		names := quotes(r.goForm)
		switch {
		case r.goForm == "none" && r.note == "":
			t.Errorf("line %d: the note must say why there is no Go form", r.line)
		case r.goForm == "none" && r.section != "librdmacm" && !strings.HasPrefix(r.note, leftOut):
			t.Errorf("line %d: the note of a row without a Go form must start with %q", r.line, leftOut)
		case r.goForm != "none" && (len(names) == 0 || r.goForm != "`"+strings.Join(names, "`, `")+"`"):
			t.Errorf("line %d: the Go form is %q: want names, or none", r.line, r.goForm)
		}
		for _, name := range names {
			if err := known.find(name); err != nil {
				t.Errorf("line %d: %v", r.line, err)
			}
		}
		if word := promise.FindString(r.goForm + " " + r.note); word != "" {
			t.Errorf("line %d contains %q: rows must describe what exists", r.line, word)
		}
	}
}

// leftOut starts the notes of rows of libibverbs and libmlx5 without a Go form.
const leftOut = "left out, because "

// TestNamesInTheText checks that all names of our packages in the document exist.
func TestNamesInTheText(t *testing.T) {
	known := load(t)
	for _, name := range quotes(read(t)) {
		if m := goName.FindStringSubmatch(name); m != nil && public[m[1]] != "" {
			if err := known.find(name); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFind(t *testing.T) {
	known := load(t)
	for _, name := range []string{"cm.Dial", "cm.ID.Connect", "cm.SyncID.PostSend", "cm.Conn.RecvComp", "cm.ID.Context",
		"cm.ErrRejected",
		"uverbs.QP.PostSend", "uverbs.QP.String", "uverbs.WC.WRID", "cm.PSTCP"} {
		if err := known.find(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"cm.Nothing", "cm.ID.Nothing", "cm.ID.mu", "cm.wrap", "cm.Dial.Nothing", "rxe.New", "cm",
		"cm.ID.QP.PostSend"} {
		if err := known.find(name); err == nil {
			t.Errorf("%s is found", name)
		}
	}
}
