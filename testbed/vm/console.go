package vm

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
)

// consoleLimit bounds the console text that is kept.
const consoleLimit = 1 << 20

// A console keeps what a guest writes to its serial console, and looks for
// signs of a kernel crash.
type console struct {
	tee     io.Writer
	trouble func(line string) // called once, with the line that was found

	mu       sync.Mutex
	text     []byte
	reported bool
	done     chan struct{} // closed when the console has ended
}

// kernelTrouble matches what the kernel prints before or while it crashes. The
// guest's kernel command line turns each of these into a panic.
var kernelTrouble = regexp.MustCompile(`Kernel panic|BUG:|Oops|soft lockup|general protection fault|` +
	`Unable to handle kernel|kernel BUG at|Internal error: `)

func newConsole(tee io.Writer, trouble func(string)) *console {
	return &console{tee: tee, trouble: trouble, done: make(chan struct{})}
}

// follow reads the console to its end.
func (c *console) follow(r io.Reader) error {
	defer close(c.done)
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			c.add(buf[:n])
			if c.tee != nil {
				if _, err := c.tee.Write(buf[:n]); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add adds text, and checks the lines that it completes or continues.
func (c *console) add(b []byte) {
	c.mu.Lock()
	from := strings.LastIndexByte(string(c.text), '\n') + 1
	c.text = append(c.text, b...)
	line := ""
	if !c.reported {
		line = troubleIn(string(c.text[from:]))
		c.reported = line != ""
	}
	if extra := len(c.text) - consoleLimit; extra > 0 {
		c.text = append([]byte(nil), c.text[extra:]...)
	}
	c.mu.Unlock()
	if line != "" {
		c.trouble(line)
	}
}

// troubleIn returns the first line that matches kernelTrouble, or "".
func troubleIn(text string) string {
	at := kernelTrouble.FindStringIndex(text)
	if at == nil {
		return ""
	}
	start := strings.LastIndexByte(text[:at[0]], '\n') + 1
	line, _, _ := strings.Cut(text[start:], "\n")
	return strings.TrimSpace(line)
}

// String returns the text that was kept.
func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(string(c.text), "\r", "")
}

// tail returns the last lines.
func (c *console) tail(lines int) string {
	all := strings.Split(strings.TrimSpace(c.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
