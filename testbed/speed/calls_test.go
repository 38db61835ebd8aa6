//go:build vm && speed

package speed

import "testing"

// TestCalls compares calls of package rdma with a message and its echo, and with unary calls of gRPC over TCP, by
// instructions; and sealed messages with TLS on package rsocket.
func TestCalls(t *testing.T) {
	g, grpc := clientsGuest(t)
	program := install(t, g, "bench/rdmacost")
	calls := measure(t, g, address+program+" -addr 10.9.0.1 -level calls")
	for name, v := range measure(t, g, grpc+" -addr 10.9.0.1") {
		calls[name] = v
	}
	for _, size := range []string{"small", "4KiB", "64KiB", "large"} {
		t.Logf("%-6s echo %8.0f  call %8.0f  handled %8.0f  region %8.0f  gRPC %8.0f", size, calls[size+"_echo"],
			calls[size+"_call"], calls[size+"_handled"], calls[size+"_region"], calls[size+"_grpc"])
	}
	if c := calls["large_region"] / calls["large_call"]; !(c <= 0.9) {
		t.Errorf("a call of 1 MiB from the program's memory takes %.3f times as many as one that copies", c)
	}
	sealed := measure(t, g, program+" -addr 10.9.0.1 -level sealed")
	for _, size := range []string{"small", "64KiB", "large"} {
		t.Logf("%-6s sealed %8.0f  TLS %8.0f", size, sealed[size+"_sealed"], sealed[size+"_tls"])
		if c := sealed[size+"_ratio"]; !(c > 0 && c <= 1) {
			t.Errorf("%s: sealed messages take %.3f times as many as TLS", size, c)
		}
	}
}
