package rsocket

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// TestReadDefaults reads the files as rdma-core's rs_configure does (librdmacm/rsocket.c), with scanf: white space
// before a number and anything after it are skipped, and without a number the default stays. The minimum stands for
// numbers below it. Where rdma-core wraps numbers that are too large or negative, the largest number or the default is
// used.
func TestReadDefaults(t *testing.T) {
	def := Config{RecvBuffer: 1 << 17, SendBuffer: 1 << 17, RecvQueue: 384, SendQueue: 384, Inline: 64}
	for _, f := range []struct {
		name, content string
		want          func(c *Config)
	}{
		{"mem_default", "65536\n", func(c *Config) { c.RecvBuffer = 65536 }},
		{"mem_default", "1", func(c *Config) { c.RecvBuffer = 4096 }},
		{"mem_default", "0", func(c *Config) { c.RecvBuffer = 4096 }},
		{"mem_default", "4294967295", func(c *Config) { c.RecvBuffer = 1 << 30 }},
		{"mem_default", "99999999999999999999999", func(c *Config) { c.RecvBuffer = 1 << 30 }},
		{"mem_default", "\t\n  8192", func(c *Config) { c.RecvBuffer = 8192 }},
		{"mem_default", "+8192", func(c *Config) { c.RecvBuffer = 8192 }},
		{"mem_default", "", func(*Config) {}},
		{"mem_default", "\n", func(*Config) {}},
		{"mem_default", "much", func(*Config) {}},
		{"mem_default", "-1", func(*Config) {}},
		{"mem_default", "- 1", func(*Config) {}},
		{"wmem_default", "262144 # bytes", func(c *Config) { c.SendBuffer = 262144 }},
		{"wmem_default", "100", func(c *Config) { c.SendBuffer = 4096 }},
		{"sqsize_default", "100k", func(c *Config) { c.SendQueue = 100 }},
		{"sqsize_default", "1", func(c *Config) { c.SendQueue = 16 }},
		{"sqsize_default", "65535", func(c *Config) { c.SendQueue = 65534 }},
		{"rqsize_default", "512\n1024\n", func(c *Config) { c.RecvQueue = 512 }},
		{"rqsize_default", "0x20", func(c *Config) { c.RecvQueue = 16 }},
		{"inline_default", "0", func(c *Config) { c.Inline = 0 }},
		{"inline_default", "016", func(c *Config) { c.Inline = 16 }},
		{"iomap_size", "128", func(c *Config) { c.Mappings = 128 }},
		{"polling_time", "0", func(c *Config) { c.Polling = -1 }},
		{"polling_time", "500", func(c *Config) { c.Polling = 500 * time.Microsecond }},
		{"wake_up_interval", "100", func(*Config) {}}, // calls that wait are always woken
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.content), 0o600); err != nil {
			t.Fatal(err)
		}
		want := def
		f.want(&want)
		if got := readDefaults(dir); got != want {
			t.Errorf("%s with %q: %+v, want %+v", f.name, f.content, got, want)
		}
	}
	if got := readDefaults(filepath.Join(t.TempDir(), "none")); got != def {
		t.Errorf("without files: %+v", got)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "mem_default"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := readDefaults(dir); got != def {
		t.Errorf("a directory: %+v", got)
	}
}

// TestConfig checks the limits of the fields.
func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{RecvBuffer: 4095}, {RecvBuffer: 1<<30 + 1}, {RecvBuffer: -1}, {SendBuffer: 1}, {SendBuffer: 1<<30 + 1},
		{RecvQueue: 15}, {RecvQueue: 65535}, {SendQueue: -1}, {SendQueue: 65535}, {Inline: 1025},
		{Mappings: -1}, {Mappings: 32513},
	} {
		if _, err := c.complete(); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	c, err := (&Config{RecvBuffer: 4097, Inline: -1, Polling: -1, Mappings: 1000}).complete()
	if err != nil || c.RecvBuffer != 4098 || c.Inline != 0 || c.Polling != -1 || c.Mappings != 768 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestScale checks the byte that stands for a number of mappings.
func TestScale(t *testing.T) {
	for n, want := range map[int]byte{0: 0, 1: 1, 128: 128, 256: 0x81, 511: 0x81, 512: 0x82, 32512: 0xff} {
		if got := scale(n); got != want {
			t.Errorf("%d is %#x, want %#x", n, got, want)
		}
	}
	for n := range 32513 {
		if got := unscale(scale(n)); got > n || n <= 128 && got != n || n >= 256 && got < n-255 {
			t.Fatalf("%d becomes %d", n, got)
		}
	}
}

// FuzzHello checks that what parseHello accepts is usable, and that bytes returns it.
func FuzzHello(f *testing.F) {
	h := hello{credits: 384, mappings: 5, list: sge{1, 2, 2}, data: sge{3, 4, 65536}}
	f.Add(h.bytes())
	f.Add(append(h.bytes(), make([]byte, 16)...))
	f.Add(make([]byte, 40))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
			return
		}
		if h.list.length == 0 || h.credits > 65535 || h.mappings < 0 || h.mappings > maxMappings || h.order == nil {
			t.Errorf("%+v", h)
		}
		if again, err := parseHello(h.bytes()); err != nil || again != h {
			t.Errorf("%+v and %+v, %v", h, again, err)
		}
	})
}
