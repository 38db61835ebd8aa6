package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// avoided are words of the glossary's list of words to avoid (CONTRIBUTING.md), as far as they cannot mean anything
// else in an error text, with what to write instead.
var avoided = []struct {
	words   *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(takes?|took)\b`), "accepts, parses, reads, removes, needs"},
	{regexp.MustCompile(`\bis no (?:[b-km-z]|l[^o])\w*`), "is not a"}, // not: is no longer
	{regexp.MustCompile(`\b(answers?|answered)\b`), "returns; replies, accepts, rejects"},
	{regexp.MustCompile(`\b(tells?|told)\b`), "returns, reports"},
	{regexp.MustCompile(`\b(whoever|nobody)\b|\bwho\b`), "the caller, the peer"},
	{regexp.MustCompile(`\b(makes?|made)\b`), "creates, allocates, builds"},
	{regexp.MustCompile(`\b(lets? go|gives? back|given back|bur(y|ies))\b`), "closes, releases, deregisters"},
	{regexp.MustCompile(`\bsettle[sd]?\b`), "chooses, resolves; idle, processed"},
	{regexp.MustCompile(`\bstands\b`), "is established"},
	{regexp.MustCompile(`\b(is|are|was|were|has) (over|gone|dead|at an end)\b`), "finished, closed, removed"},
	{regexp.MustCompile(`\b(too|is|comes?|came) late\b`), "after the timeout, after Close"},
	{regexp.MustCompile(`\bnews\b|\bhears? of\b`), "event, is notified"},
	{regexp.MustCompile(`\bthere (is|are) none\b|\bthat there is not\b`), "if the device has no"},
	{regexp.MustCompile(`\bof (its|their|your) own\b`), "private, separate, or nothing"},
}

// library returns the files of the library that are not generated, without packages for tests.
func library(t *testing.T) []*file {
	t.Helper()
	return slices.DeleteFunc(files(t), func(f *file) bool {
		inProgram := func(dir string) bool { return strings.HasPrefix(f.path, dir) }
		return f.test() || f.generated || slices.ContainsFunc(programs, inProgram) || matchesAny(forTests, f.dir())
	})
}

// TestWordsOfTexts checks the words of error texts: of all strings of several words in the library.
func TestWordsOfTexts(t *testing.T) {
	for _, f := range library(t) {
		for at, text := range texts(f.ast) {
			for _, a := range avoided {
				for _, m := range a.words.FindAllStringIndex(text, -1) {
					if strings.HasSuffix(text[:m[0]], "there ") { // there is no device
						continue
					}
					t.Errorf("%s: %q in %q: write %s", f.fset.Position(at), text[m[0]:m[1]], text, a.instead)
				}
			}
		}
	}
}

// maxSentinel limits the texts of error variables: one sentence. The doc comment has the rest.
const maxSentinel = 120

// TestSentinelsAreShort checks the texts of error variables.
func TestSentinelsAreShort(t *testing.T) {
	for _, f := range library(t) {
		for _, d := range f.ast.Decls {
			if d, ok := d.(*ast.GenDecl); !ok || d.Tok != token.VAR {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if text := sentinelText(n); len(text) > maxSentinel {
					t.Errorf("%s: %d bytes, more than %d: %q", f.at(n), len(text), maxSentinel, text)
				}
				return true
			})
		}
	}
}

// sentinelText returns the text of an expression that creates an error variable.
func sentinelText(n ast.Node) (text string) {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if len(n.Args) > 0 && slices.Contains([]string{"newSentinel", "New", "Errorf"}, name) {
			text, _ = joined(n.Args[0])
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "text" {
			text, _ = joined(n.Value)
		}
	}
	return text
}

// texts returns the strings of a file that have several words, by their positions. Parts that are joined with "+" are
// one string.
func texts(f *ast.File) map[token.Pos]string {
	all := map[token.Pos]string{}
	var parts []ast.Node // of strings that were found
	ast.Inspect(f, func(n ast.Node) bool {
		x, ok := n.(ast.Expr)
		if !ok || slices.Contains(parts, n) {
			return true
		}
		text, in := joined(x)
		parts = append(parts, in...)
		if len(strings.Fields(text)) > 2 {
			all[n.Pos()] = text
		}
		return true
	})
	return all
}

// joined returns the text of an expression of strings, and the nodes in it. What is not a constant is one word.
func joined(x ast.Expr) (text string, in []ast.Node) {
	switch x := x.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			text, _ = strconv.Unquote(x.Value) // the parser accepted it
			return text, []ast.Node{x}
		}
	case *ast.BinaryExpr:
		if x.Op == token.ADD {
			left, inLeft := joined(x.X)
			right, inRight := joined(x.Y)
			if inLeft != nil || inRight != nil {
				return left + right, append(append(inLeft, inRight...), x)
			}
		}
	}
	return "…", nil
}
