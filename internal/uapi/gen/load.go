package main

import (
	"embed"
	"fmt"
	"path/filepath"
	"strings"

	"modernc.org/cc/v4"
)

// standIns holds minimal replacements for the <linux/...> headers that the RDMA
// headers include, so that neither a C library nor a compiler is needed.
//
//go:embed include/linux/*.h
var standIns embed.FS

// predefined contains the declarations that a C compiler would provide.
const predefined = `
#define __linux__ 1
#define __x86_64__ 1
#define __STDC_HOSTED__ 1
#define __STDC_VERSION__ 201710L
#define __STDC__ 1
#define __GNUC__ 12
#define __LP64__ 1
#define __SIZE_TYPE__ long unsigned int
#define __WCHAR_TYPE__ int
#define __PTRDIFF_TYPE__ long int
int __predefined_declarator;
typedef long unsigned int __predefined_size_t;
typedef int __predefined_wchar_t;
typedef long int __predefined_ptrdiff_t;
`

// number is the value of a constant in the headers.
type number struct {
	value uint64
	group string // "enum x", "an unnamed enum" or "" for a macro
	seq   int    // number of the enum, which distinguishes unnamed enums
	hex   bool
}

// headers holds the declarations that the C front end found.
type headers struct {
	consts  map[string]number
	structs map[string]*cc.StructType
}

// loadHeaders runs the C front end over the headers that the entries name.
func loadHeaders(dir string, entries []*entry) (*headers, error) {
	abi, err := cc.NewABI("linux", "amd64")
	if err != nil {
		return nil, err
	}
	var src strings.Builder
	seen := map[string]bool{}
	for _, e := range entries {
		if !seen[e.header] {
			seen[e.header] = true
			fmt.Fprintf(&src, "#include <%s>\n", e.header)
		}
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	cfg := &cc.Config{
		ABI:             abi,
		FS:              standIns,
		SysIncludePaths: []string{"include", dir},
		EvalAllMacros:   true,
		Header:          true,
	}
	ast, err := cc.Translate(cfg, []cc.Source{
		{Name: "<predefined>", Value: predefined},
		{Name: "list.c", Value: src.String()},
	})
	if err != nil {
		return nil, fmt.Errorf("reading the headers in %s: %w", dir, err)
	}
	h := &headers{consts: map[string]number{}, structs: map[string]*cc.StructType{}}
	h.addMacros(ast)
	h.addEnums(ast)
	for s := range ast.Structs {
		if tag := s.Tag(); tag.SrcStr() != "" && s.NumFields() > 0 {
			h.structs[tag.SrcStr()] = s
		}
	}
	return h, nil
}

// addMacros adds the macros that are integer constants.
func (h *headers) addMacros(ast *cc.AST) {
	for name, m := range ast.Macros {
		if m.IsFnLike {
			continue
		}
		v, ok := integer(m.Value())
		if !ok {
			continue
		}
		hex := false
		for _, t := range m.ReplacementList() {
			hex = hex || t.SrcStr() == "<<" || t.SrcStr() == "_IOWR" || strings.HasPrefix(t.SrcStr(), "0x")
		}
		h.consts[name] = number{value: v, hex: hex}
	}
}

// addEnums adds the enumerators at file scope.
func (h *headers) addEnums(ast *cc.AST) {
	seq := 0
	for l := ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		d := l.ExternalDeclaration
		if d == nil || d.Declaration == nil {
			continue
		}
		for s := d.Declaration.DeclarationSpecifiers; s != nil; s = s.DeclarationSpecifiers {
			if s.TypeSpecifier != nil && s.TypeSpecifier.EnumSpecifier != nil {
				seq++
				h.addEnum(s.TypeSpecifier.EnumSpecifier, seq)
			}
		}
	}
}

func (h *headers) addEnum(e *cc.EnumSpecifier, seq int) {
	group := "an unnamed enum"
	if e.Token2.SrcStr() != "" {
		group = "enum " + e.Token2.SrcStr()
	}
	hex := strings.Contains(cc.NodeSource(e.EnumeratorList), "<<")
	for l := e.EnumeratorList; l != nil; l = l.EnumeratorList {
		v, ok := integer(l.Enumerator.Value())
		if !ok {
			continue
		}
		own := false
		if x := l.Enumerator.ConstantExpression; x != nil {
			own = strings.Contains(cc.NodeSource(x), "0x")
		}
		h.consts[l.Enumerator.Token.SrcStr()] = number{value: v, group: group, seq: seq, hex: hex || own}
	}
}

func integer(v cc.Value) (uint64, bool) {
	switch x := v.(type) {
	case cc.Int64Value:
		return uint64(x), true
	case cc.UInt64Value:
		return uint64(x), true
	}
	return 0, false
}
