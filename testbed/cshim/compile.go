package cshim

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// On returns a host for programs that use a device of this process's machine, until the test ends. driver is the
// provider of C, such as efa of libefa.so.
func On(t testing.TB, device, driver string) *Host {
	t.Helper()
	return newHost(t, func(f func()) { f() }, device, driver)
}

// Compile compiles a C program with libibverbs and further libraries of the tree, named as after -l. It returns the
// path of the program, for [Host.Run].
func (h *Host) Compile(source string, libs ...string) string {
	h.t.Helper()
	to := filepath.Join(h.t.TempDir(), "program")
	include := h.Path("usr/include")
	lib := func(name string) string { return filepath.Join(h.root.libs, name) }
	host := root{tree: h.root.tree, libs: h.root.libs} // the compiler needs no device
	args := host.loaded("tcc", "-B"+lib("tcc"), "-nostdlib", "-nostdinc", "-isystem", lib("tcc/include"),
		"-isystem", filepath.Join(include, triple), "-isystem", include, "-Wall", "-Werror", "-D_GNU_SOURCE",
		"-L"+h.root.libs, "-o", to,
		lib("crt1.o"), lib("crti.o"), source, lib("libibverbs.so"))
	for _, name := range libs {
		args = append(args, lib("lib"+name+".so"))
	}
	args = append(args, lib("libc.so.6"), lib("tcc/libtcc1.a"), lib("crtn.o"))
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		h.t.Fatalf("cshim: compiling %s: %v\n%s", source, err, out)
	}
	return to
}

// Run is [Host.Command] for a program that [Host.Compile] has compiled.
func (h *Host) Run(program string, args ...string) *exec.Cmd {
	h.t.Helper()
	c := h.Command("tcc", args...)
	at := slices.Index(c.Args, h.Path("usr/bin/tcc"))
	c.Args[at] = program
	return c
}
