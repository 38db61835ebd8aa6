package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	built := func(path, version, revision string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: path, Version: version},
			Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: revision}}}
	}
	for _, c := range []struct {
		release, commit string
		b               *debug.BuildInfo
		want            Info
	}{
		{"", "", nil, Info{Version: "(devel)"}},
		{"", "", built(module, "(devel)", ""), Info{Version: "(devel)"}},
		{"", "", built(module, "v0.2.0", hash), Info{Version: "v0.2.0", Commit: hash}},
		{"v0.1.0", "ab", built(module, "v0.2.0", hash), Info{Version: "v0.1.0", Commit: "ab"}},
		{"v0.1.0", "", nil, Info{Version: "v0.1.0"}},
		{"", "", built("example.com/other", "v7.0.0", hash), Info{Version: "(devel)"}},
	} {
		release, commit = c.release, c.commit
		c.want.Go = runtime.Version()
		if got := read(c.b); got != c.want {
			t.Errorf("%q, %q, %+v: %+v, want %+v", c.release, c.commit, c.b, got, c.want)
		}
	}
	release, commit = "v0.1.0", hash
	t.Cleanup(func() { release, commit = "", "" })
	var b strings.Builder
	want := "rping v0.1.0 (" + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ", commit 0123456789ab)\n"
	if err := Print(&b, "rping"); err != nil || b.String() != want {
		t.Errorf("%q, %v, want %q", b.String(), err, want)
	}
}

func TestAsked(t *testing.T) {
	for args, want := range map[string]bool{"-version": true, "--version": true, "": false, "-v": false, "version": false,
		"-version host": false, "-v -version": false} {
		if got := Asked(strings.Fields(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
}
