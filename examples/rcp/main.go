// Rcp copies a file between two processes over RDMA: first "rcp [-l ADDR] recv FILE", then "rcp send FILE ADDR".
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	listen := flag.String("l", ":7472", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.New("usage: rcp [-l ADDR] recv FILE | rcp send FILE ADDR")
	if a := flag.Args(); len(a) == 2 && a[0] == "recv" {
		err = receive(ctx, *listen, a[1])
	} else if len(a) == 3 && a[0] == "send" {
		err = send(ctx, a[2], a[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A progress counts the bytes of a file that were copied. Both sides have one, and compare them at the end.
type progress struct {
	size, bytes int64
	crc         uint32
	start, last time.Time
}

// add counts the bytes of b, and prints once a second how far the copy is.
func (p *progress) add(b []byte) {
	p.bytes += int64(len(b))
	p.crc = crc32.Update(p.crc, crc32.MakeTable(crc32.Castagnoli), b)
	if now := time.Now(); now.Sub(p.last) >= time.Second || p.bytes == p.size {
		p.last = now
		log.Printf("%d of %d bytes, %.1f MB/s", p.bytes, p.size, float64(p.bytes)/1e6/now.Sub(p.start).Seconds())
	}
}
func (p *progress) String() string { return fmt.Sprintf("%d bytes, CRC-32C %08x", p.bytes, p.crc) }

func send(ctx context.Context, addr, name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c, err := rdma.Dial(ctx, addr, &rdma.Options{PrivateData: binary.AppendVarint(nil, info.Size())})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p := &progress{size: info.Size(), start: time.Now()}
	for {
		b, err := c.Alloc(1 << 20)
		if err != nil {
			return err
		}
		n, err := f.Read(b.Bytes())
		if err == io.EOF {
			b.Release()
			break
		}
		p.add(b.Bytes()[:n])
		if err := errors.Join(err, b.SetLen(n), c.SendBuffer(ctx, b)); err != nil { // without a copy
			b.Release()
			return err
		}
	}
	m, err := c.Call(ctx, []byte(p.String())) // the receiver replies when it has the file
	if err != nil {
		return err
	}
	if verdict := string(m.Copy()); verdict != p.String() {
		return fmt.Errorf("of %v, the receiver has %.200q", p, verdict)
	}
	log.Printf("%s: %v, the receiver agrees", name, p)
	return nil
}

func receive(ctx context.Context, addr, name string) (err error) {
	l, err := rdma.Listen(addr, nil)
	if err != nil {
		return err
	}
	log.Print("waiting at ", l.Addr())
	c, err := l.Accept(ctx)
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	f, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	defer f.Close()
	size, _ := binary.Varint(c.PrivateData())
	p := &progress{size: size, start: time.Now()}
	m, err := c.Recv(ctx)
	for ; err == nil && !m.IsCall(); m, err = c.Recv(ctx) {
		p.add(m.Bytes())
		_, err := f.Write(m.Bytes())
		m.Release()
		if err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("before the end of the file: %w", err)
	}
	verdict := p.String()
	if want := string(m.Copy()); want != verdict {
		err = fmt.Errorf("corrupt: %s have come of %.200q", verdict, want)
	} else if err = f.Close(); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		verdict = err.Error()
	}
	return errors.Join(err, m.Reply(ctx, []byte(verdict)))
}
