package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cavaliergopher/cpio"

	"github.com/goverbs/goverbs/testbed/vm/guestinit"
	"github.com/goverbs/goverbs/testbed/vm/internal/kmod"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

const agentPackage = "github.com/goverbs/goverbs/testbed/vm/cmd/guest-agent"

// writeInitramfs writes the initramfs: the first process, and modules. The kernel
// unpacks it over its built-in one, which has /dev/console, the first process's
// output.
func writeInitramfs(name string, c Config, init []byte, modules []kmod.Module) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(f, 1<<20)
	err = fillInitramfs(cpio.NewWriter(buf), c, init, modules)
	return errors.Join(err, buf.Flush(), f.Close())
}

// An entry is a file or directory of the initramfs. A directory precedes its files.
type entry struct {
	name string
	mode cpio.FileMode
	data []byte
}

func fillInitramfs(w *cpio.Writer, c Config, init []byte, modules []kmod.Module) error {
	config, err := json.Marshal(wire.GuestConfig{Root: c.Root, Preload: c.Preload, Fabric: c.Fabric, Share: c.Share != "",
		RXE: c.RXE, SIW: c.SIW})
	if err != nil {
		return err
	}
	entries := []entry{{guestinit.ModuleDir, cpio.TypeDir | 0o755, nil}}
	var list []byte
	for _, m := range modules {
		list = fmt.Appendln(list, m.Name)
		entries = append(entries, entry{filepath.Join(guestinit.ModuleDir, m.Name+".ko"), cpio.TypeReg | 0o644, m.Data})
	}
	entries = append(entries,
		entry{filepath.Join(guestinit.ModuleDir, guestinit.ModuleList), cpio.TypeReg | 0o644, list},
		entry{wire.ConfigFile, cpio.TypeReg | 0o644, config},
		entry{"/init", cpio.TypeReg | 0o755, init},
		entry{"/root", cpio.TypeDir | 0o755, nil})
	for _, e := range entries {
		if err := e.write(w); err != nil {
			return fmt.Errorf("initramfs: %s: %w", e.name, err)
		}
	}
	return w.Close()
}

func (e entry) write(w *cpio.Writer) error {
	name := strings.TrimPrefix(e.name, "/")
	err := w.WriteHeader(&cpio.Header{Name: name, Mode: e.mode, Links: 1, Size: int64(len(e.data))})
	if err == nil {
		_, err = w.Write(e.data)
	}
	return err
}

// firstProcess returns the program that the kernel starts.
func (c Config) firstProcess(ctx context.Context, cache string) ([]byte, error) {
	if c.Init != "" {
		return os.ReadFile(c.Init)
	}
	return buildAgent(ctx, cache, c.Arch)
}

// buildAgent compiles the guest's agent. The program is kept in the cache, so
// that the go command only checks that it is up to date.
func buildAgent(ctx context.Context, cache, arch string) ([]byte, error) {
	bin := filepath.Join(cache, "agent")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(bin, "guest-agent-"+arch)
	unlock, err := lockFile(file + ".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := sources()
	err = goBuild(ctx, arch, dir, "build", "-trimpath", "-ldflags=-s -w", "-o", file, agentPackage)
	if err != nil && dir == "" {
		err = fmt.Errorf("the sources that this program was built from are not known: run it in testbed, or build it there "+
			"again without -trimpath: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("the guest's agent, from its sources: %w", err)
	}
	return os.ReadFile(file)
}

// sources returns the directory of this file when it was compiled, so that a built program compiles the agent from
// any working directory. With -trimpath, or if they were removed, it is "": the working directory must be in the module
// then.
func sources() string {
	_, file, _, ok := runtime.Caller(0)
	if _, err := os.Stat(file); !ok || err != nil || !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Dir(file)
}

// goBuild runs go build for a guest's architecture, without cgo, in dir ("" is the working directory).
func goBuild(ctx context.Context, arch, dir string, args ...string) error {
	args = append([]string{args[0], "-buildvcs=false"}, args[1:]...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &out)
	}
	return nil
}
