package vm

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// CompileC compiles a C source file of the host into a program in the guest,
// and returns the program's path there. It needs Config.Root. It uses the
// guest's tcc, libraries and headers, so the host needs no compiler; it takes
// less than a second. It finds the headers of the source's directory. The program is linked dynamically with
// libibverbs, librdmacm, and libs, which are names as after -l. Warnings are errors. tcc
// supports C99 and does not optimize: a loop that is measured should spend its
// time in the libraries. With Config.Fabric it finds libfabric's headers and library.
func (g *Guest) CompileC(ctx context.Context, source string, libs ...string) (guestPath string, err error) {
	if !g.config.Root {
		return "", fmt.Errorf("vm: compiling %s: the guest has no compiler: set Config.Root", source)
	}
	headers, err := filepath.Glob(filepath.Join(filepath.Dir(source), "*.h"))
	if err != nil {
		return "", err
	}
	installed, err := g.Install(source, headers...)
	if err != nil {
		return "", err
	}
	program := "/tmp/" + strings.TrimSuffix(strings.ReplaceAll(installed[1:], "/", "."), path.Ext(installed))
	args := []string{"-Wall", "-Werror", "-D_GNU_SOURCE", "-o", program, installed, "-libverbs", "-lrdmacm"}
	if g.config.Fabric {
		args = append(args, "-I"+wire.FabricDir+"/usr/include", "-L"+fabricLib)
	}
	for _, lib := range libs {
		args = append(args, "-l"+lib)
	}
	if out, err := g.CommandContext(ctx, "tcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("vm: compiling %s: %w\n%s", source, err, out)
	}
	return program, nil
}

// BuildC compiles a C program for a guest as CompileC does.
func BuildC(t testing.TB, g *Guest, source string, libs ...string) string {
	t.Helper()
	program, err := g.CompileC(t.Context(), source, libs...)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
