package vfiouser_test

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// BenchmarkPosted measures doorbells per second.
func BenchmarkPosted(b *testing.B) {
	c := plug(b, newToy(b, 0x1017))
	write := request(1, vfiouser.RegionWrite, 0x10, access(toyScratch, 0, 8, make([]byte, 8)...))
	b.ReportAllocs()
	for b.Loop() {
		c.send(write)
	}
	c.ping()
}

// BenchmarkRead measures the latency of register reads.
func BenchmarkRead(b *testing.B) {
	c := plug(b, newToy(b, 0x1017))
	b.ReportAllocs()
	for b.Loop() {
		c.read(0, toyCount, 4)
	}
}
