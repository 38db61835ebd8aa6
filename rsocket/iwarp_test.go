package rsocket_test

import (
	"testing"

	"github.com/goverbs/goverbs/rsocket"
)

// TestIWARP runs tests with the messages of iWARP, on devices that have immediate data.
func TestIWARP(t *testing.T) {
	rsocket.MessagesAreSends(t)
	for name, f := range map[string]func(t *testing.T){
		"Stream": TestStream, "WriteFillsWindow": TestWriteFillsWindow, "CopyFillsWindow": TestCopyFillsWindow,
		"HalfClose": TestHalfClose, "WriteBuffers": TestWriteBuffers,
	} {
		t.Run(name, f)
	}
}
