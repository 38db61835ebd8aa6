package peer

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The measurement: calls of callBytes for latency, and batches of WRITEs for bandwidth, each for about measureTime.
const (
	measureTime = 300 * time.Millisecond
	callBytes   = 64
	writeBytes  = 64 << 10
	batchWrites = 15
)

// Figures are what a short measurement gave.
type Figures struct {
	Calls     int           `json:"calls"`      // round trips of 64 bytes
	Typical   time.Duration `json:"typical_ns"` // median round trip
	P99       time.Duration `json:"p99_ns"`
	MBPerSec  float64       `json:"write_mb_per_s"` // 10^6 bytes a second, by WRITEs of 64 KiB
	Writes    int           `json:"writes"`
	WriteSize int           `json:"write_bytes"`
}

func (f *Figures) String() string {
	return fmt.Sprintf("round trip of %d bytes: typical %v, 99%% within %v (%d calls); WRITEs of %d KiB: %.0f MB/s",
		callBytes, f.Typical.Round(10*time.Nanosecond), f.P99.Round(10*time.Nanosecond), f.Calls, f.WriteSize>>10, f.MBPerSec)
}

// measure measures the connection.
func (c *client) measure(ctx context.Context) (*Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	request := make([]byte, callBytes)
	var trips []time.Duration
	for begin := time.Now(); len(trips) < 8 || time.Since(begin) < measureTime; {
		start := time.Now()
		m, err := c.Call(ctx, request)
		if err != nil {
			return nil, err
		}
		trips = append(trips, time.Since(start))
		m.Release()
	}
	slices.Sort(trips)
	f := &Figures{Calls: len(trips), Typical: trips[len(trips)/2], P99: trips[len(trips)*99/100], WriteSize: writeBytes}
	return f, c.bandwidth(ctx, f)
}

func (c *client) bandwidth(ctx context.Context, f *Figures) error {
	b, err := c.Alloc(writeBytes)
	if err != nil {
		return err
	}
	defer b.Release()
	batch := c.NewBatch()
	begin := time.Now()
	for f.Writes == 0 || time.Since(begin) < measureTime {
		for i := range batchWrites {
			batch.Write(b, c.token, i*writeBytes)
		}
		if err := batch.Do(ctx); err != nil {
			return err
		}
		f.Writes += batchWrites
	}
	f.MBPerSec = float64(f.Writes*writeBytes) / 1e6 / time.Since(begin).Seconds()
	return nil
}
