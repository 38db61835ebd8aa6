package rsocket_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// TestStress has many goroutines write records in both directions of a connection at once, each record with one Write.
// The other side finds the records whole, and those of a goroutine in order.
func TestStress(t *testing.T) {
	const writers, records = 8, 100
	config := rsocket.Config{RecvBuffer: 10000, SendBuffer: 8192, RecvQueue: 32, SendQueue: 32}
	p := connect(t, config, rsocket.Config{Polling: -1})
	var all sync.WaitGroup
	for _, sides := range [][2]*rsocket.Conn{{p.client, p.server}, {p.server, p.client}} {
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for i := range records {
					write(t, sides[0], record(w, i))
				}
			})
		}
		all.Go(func() {
			writing.Wait()
			check(t, sides[0].CloseWrite())
		})
		all.Go(func() {
			if err := readRecords(sides[1], writers, records); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// record returns record i of a writer: both numbers, the length, and that many bytes.
func record(writer, i int) []byte {
	n := (writer*31 + i*97) % 3000
	b := binary.BigEndian.AppendUint16(nil, uint16(writer))
	b = binary.BigEndian.AppendUint16(b, uint16(i))
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	for range n {
		b = append(b, byte(i))
	}
	return b
}

func readRecords(c net.Conn, writers, records int) error {
	next := make([]int, writers)
	for {
		var head [6]byte
		if _, err := io.ReadFull(c, head[:]); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		w, i := int(binary.BigEndian.Uint16(head[:])), int(binary.BigEndian.Uint16(head[2:]))
		want := record(w, i)
		got := make([]byte, len(want)-6)
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if w >= writers || next[w] != i || string(got) != string(want[6:]) {
			return fmt.Errorf("writer %d: record %d, want %d, or other bytes", w, i, next[w])
		}
		next[w]++
	}
	for w, n := range next {
		if n != records {
			return fmt.Errorf("writer %d: %d records", w, n)
		}
	}
	return nil
}

// TestReaders has several goroutines read from a connection: together they read everything, once.
func TestReaders(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	const total = 1 << 20
	var mu sync.Mutex
	sum, read := 0, 0
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			buf := make([]byte, 777)
			for {
				n, err := p.server.Read(buf)
				mu.Lock()
				for _, b := range buf[:n] {
					sum += int(b)
				}
				read += n
				mu.Unlock()
				if err == io.EOF {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	want := 0
	b := data(total)
	for _, x := range b {
		want += int(x)
	}
	write(t, p.client, b)
	check(t, p.client.CloseWrite())
	done := background(func() error { readers.Wait(); return nil })
	check(t, within(t, done, "Read"))
	if read != total || sum != want {
		t.Errorf("%d bytes with sum %d, want %d with %d", read, sum, total, want)
	}
}

// connections is the number of connections of TestManyConnections.
func connections(t testing.TB, def int) int {
	if s := os.Getenv("GOVERBS_RSOCKET_CONNS"); s != "" {
		return must(strconv.Atoi(s))(t)
	}
	return def
}

// TestManyConnections reads and writes on many connections at once, all of which wait first.
func TestManyConnections(t *testing.T) { manyConnections(t, connections(t, 100)) }

func manyConnections(t *testing.T, n int) {
	config := rsocket.Config{RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16, Polling: -1}
	p := machines(t)
	l := p.listen(t, config)
	check(t, l.SetDeadline(time.Now().Add(10*time.Minute)))
	var served, clients sync.WaitGroup
	ready := make(chan struct{})
	p.onServer(func() {
		served.Go(func() {
			for range n {
				c, err := l.AcceptConn()
				if err != nil {
					t.Error(err)
					return
				}
				served.Go(func() {
					_, err := io.Copy(c, c)
					if err = errors.Join(err, c.Close()); err != nil {
						t.Error(err)
					}
				})
			}
		})
	})
	p.onClient(func() {
		var dialing sync.WaitGroup
		limited := make(chan struct{}, 16)
		for i := range n {
			dialing.Add(1)
			limited <- struct{}{}
			clients.Go(func() {
				d := &rsocket.Dialer{Config: config}
				c, err := d.DialContext(t.Context(), "tcp", p.addr(l))
				<-limited
				dialing.Done()
				if err != nil {
					t.Error(err)
					return
				}
				<-ready
				if err := talkTo(c, i); err != nil {
					t.Error(err)
				}
			})
		}
		dialing.Wait()
	})
	close(ready)
	clients.Wait()
	served.Wait()
	check(t, l.Close())
}

// talkTo writes to a server that replies with the same.
func talkTo(c net.Conn, i int) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return err
	}
	b := data(100 + i%5000)
	got := make([]byte, len(b))
	for range 3 {
		wrote := background(func() error { _, err := c.Write(b); return err })
		_, err := io.ReadFull(c, got)
		if err = errors.Join(err, <-wrote); err != nil {
			return errors.Join(err, c.Close())
		}
		if string(got) != string(b) {
			return errors.Join(errors.New("other data"), c.Close())
		}
	}
	return c.Close()
}
