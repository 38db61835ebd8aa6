package cm

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestCauses checks that errors.As and errors.Is find the cause of an error.
func TestCauses(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	var dns *net.DNSError
	_, err := GetAddrInfo(ctx, "no-such-host.invalid", "5", nil)
	if is(t, "host", err, ErrUnreachable); !errors.As(err, &dns) || dns.Name != "no-such-host.invalid" {
		t.Errorf("host: %v has no net.DNSError", err)
	}
	dns = nil
	_, err = GetAddrInfo(ctx, "192.0.2.1", "no-such-service", nil)
	if is(t, "service", err, uverbs.ErrInvalid); !errors.As(err, &dns) || dns.Name != "tcp/no-such-service" {
		t.Errorf("service: %v has no net.DNSError", err)
	}
	is(t, "lookup", second(GetAddrInfo(endedContext(), "no-such-host.invalid", "5", nil)), context.Canceled)
	cause := errors.New("something else")
	is(t, "wrapped", wrap("connect", "id", cause, ""), cause)
}
