// Package version reports which version of goverbs a program is.
package version

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// release and commit are set by the linker for programs of a release, whose build does not read the repository:
// -X github.com/goverbs/goverbs/internal/version.release=v0.1.0.
var release, commit string

// An Info is the origin of a program.
type Info struct {
	Version string `json:"version"`          // such as v0.1.0, or (devel) if the build did not know it
	Commit  string `json:"commit,omitempty"` // hash of the commit in hexadecimal
	Go      string `json:"go"`               // version of Go, such as go1.26.0
}

// Read returns the origin of the running program: what the linker set, and otherwise what the go command recorded.
func Read() Info {
	b, _ := debug.ReadBuildInfo() // nil if the program has none
	return read(b)
}

const module = "github.com/goverbs/goverbs"

func read(b *debug.BuildInfo) Info {
	i := Info{Version: release, Commit: commit, Go: runtime.Version()}
	if b != nil && b.Main.Path == module {
		i.Version = cmp.Or(i.Version, b.Main.Version)
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				i.Commit = cmp.Or(i.Commit, s.Value)
			}
		}
	}
	i.Version = cmp.Or(i.Version, "(devel)")
	return i
}

// String returns a form for people, such as "v0.1.0 (go1.26.0 linux/amd64, commit 0123456789ab)".
func (i Info) String() string {
	text := fmt.Sprintf("%s (%s %s/%s", i.Version, i.Go, runtime.GOOS, runtime.GOARCH)
	if i.Commit != "" {
		text += ", commit " + i.Commit[:min(len(i.Commit), 12)]
	}
	return text + ")"
}

// Asked reports whether a command line, without the name of the program, has no other argument than -version or
// --version.
func Asked(args []string) bool {
	return len(args) == 1 && (args[0] == "-version" || args[0] == "--version")
}

// Print writes a line with the name of a program and its version.
func Print(w io.Writer, program string) error {
	_, err := fmt.Fprintf(w, "%s %v\n", program, Read())
	return err
}
