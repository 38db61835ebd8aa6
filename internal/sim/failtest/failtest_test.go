package failtest

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestProblems(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	docs := map[string]string{
		"Names":     "Names fails. [ErrOne] at times.",
		"T.Refers":  "Refers fails; else the errors are those of [T.Circle] and [Names].",
		"T.Circle":  "The errors are those of [T.Refers].",
		"Silent":    "Silent fails.",
		"Mistaken":  "Mistaken is not [ErrOne].",
		"Forgotten": "[ErrOne].",
		"Text":      "Text cannot fail.",
		"Lies":      "Lies.",
	}
	p := &Package{
		Failures: map[string]Failure{
			"Names": {Err: one, Want: one}, "T.Refers": {Err: one, Want: one},
			"T.Circle": {Err: one, Want: one, Doc: "at times"},
			"Silent":   {Err: one, Want: one}, "Mistaken": {Err: two, Want: one}, "Gone": {Err: one, Want: one},
		},
		Names:      map[error]string{one: "[ErrOne]"},
		CannotFail: []string{"Text", "Lies"},
	}
	want := []string{
		"Forgotten: no test makes it fail",
		"Gone is not an exported function that returns an error",
		"Lies: the comment does not say that it cannot fail",
		"Mistaken: error two, want one",
		"Silent: the comment does not say \"[ErrOne]\":\nSilent fails.",
	}
	if got := p.problems(docs); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestComments(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go": "package a\n\n// F is\n// long.\nfunc F() (int, error) { return 0, nil }\nfunc G() int { return 0 }\n" +
			"func h() error { return nil }\n" +
			"type T int\ntype u int\nfunc (*T) M() error { return nil }\nfunc (T) N() error { return nil }\n" +
			"func (u) M() error { return nil }\n",
		"a_test.go": "package a\n\nfunc Test() error { return nil }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	docs, err := comments(dir)
	if want := map[string]string{"F": "F is long.", "T.M": "", "T.N": ""}; err != nil || !maps.Equal(docs, want) {
		t.Errorf("%q, %v", docs, err)
	}
}
