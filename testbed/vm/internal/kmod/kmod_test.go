package kmod

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

// module returns the smallest ELF file with a .modinfo section.
func module(info string) []byte {
	const names = "\x00.modinfo\x00.shstrtab\x00"
	var b bytes.Buffer
	le := binary.LittleEndian
	head := make([]byte, 64)
	copy(head, "\x7fELF\x02\x01\x01")
	le.PutUint16(head[16:], 1)  // relocatable
	le.PutUint16(head[18:], 62) // x86-64
	le.PutUint32(head[20:], 1)
	le.PutUint64(head[40:], uint64(64+len(info)+len(names))) // section headers
	le.PutUint16(head[52:], 64)
	le.PutUint16(head[58:], 64)
	le.PutUint16(head[60:], 3)
	le.PutUint16(head[62:], 2)
	b.Write(head)
	b.WriteString(info)
	b.WriteString(names)
	section := func(name, typ uint32, off, size int) {
		s := make([]byte, 64)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], typ)
		le.PutUint64(s[24:], uint64(off))
		le.PutUint64(s[32:], uint64(size))
		b.Write(s)
	}
	section(0, 0, 0, 0)
	section(1, 1, 64, len(info))
	section(10, 3, 64+len(info), len(names))
	return b.Bytes()
}

func tree(t *testing.T) *Tree {
	t.Helper()
	dir := t.TempDir()
	for name, info := range map[string]string{
		"kernel/net/a-b.ko":     "name=a_b\x00depends=c,d\x00license=GPL\x00",
		"kernel/c.ko":           "depends=d\x00",
		"kernel/d.ko":           "depends=\x00",
		"kernel/lost.ko":        "depends=nowhere\x00",
		"kernel/uses.ko":        "depends=inside\x00",
		"kernel/soft.ko":        "depends=c\x00softdep=post: b pre: sum nothing inside d\x00",
		"kernel/sum_generic.ko": "depends=\x00",
		"modules.builtin":       "kernel/inside.ko\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		data := module(info)
		if name == "modules.builtin" {
			data = []byte(info)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kernel, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return kernel
}

func TestResolve(t *testing.T) {
	kernel := tree(t)
	for _, x := range []struct{ names, want []string }{
		{[]string{"uses", "a_b", "c", "inside"}, []string{"uses", "d", "c", "a_b"}},
		{[]string{"soft"}, []string{"d", "c", "sum_generic", "soft"}},
	} {
		modules, err := kernel.Resolve(x.names...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range modules {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("order %v, want %v", got, x.want)
		}
	}
}

func TestMissing(t *testing.T) {
	kernel := tree(t)
	for name, want := range map[string]MissingError{
		"none": {Module: "none"},
		"lost": {Module: "nowhere", NeededBy: "lost"},
	} {
		_, err := kernel.Resolve(name)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.Module != want.Module || missing.NeededBy != want.NeededBy {
			t.Errorf("%s: error %v, want %+v", name, err, want)
		}
	}
	if kernel.Has("none") || !kernel.Has("a-b") || !kernel.Has("inside") {
		t.Error("Has is wrong")
	}
}

// TestCompressed checks that modules in xz files are decompressed, and that
// damage is reported with the file's name.
func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	want := module("depends=\x00")
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(packed.Bytes())
	damaged[len(damaged)/2] ^= 0x10
	files := map[string][]byte{"good": packed.Bytes(), "damaged": damaged, "cut": packed.Bytes()[:packed.Len()/2],
		"plain": want}
	for name, data := range files {
		file := filepath.Join(dir, name+".ko.xz")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := read(file)
		switch {
		case name == "good" && (err != nil || !bytes.Equal(got, want)):
			t.Errorf("%s: % x, %v", name, got, err)
		case name != "good" && (err == nil || !strings.Contains(err.Error(), file)):
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzDepends(f *testing.F) {
	f.Add(module("depends=a,b\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if names, soft, err := Depends(data); err != nil && (names != nil || soft != nil) {
			t.Error("both names and an error")
		}
	})
}
