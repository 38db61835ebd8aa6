// Rcp copies a file between two processes over RDMA.
//
//	rcp [-l ADDR] recv FILE
//	rcp send FILE ADDR
package main

import (
	"context"
	"encoding/json"
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

// A trailer follows the file, as a call. The receiver replies with its own, and what went wrong.
type trailer struct {
	Bytes int64
	CRC   uint32
	Err   string `json:",omitempty"`
}

func main() {
	listen := flag.String("l", ":7472", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.New("usage: rcp recv FILE | rcp send FILE ADDR")
	switch a := flag.Args(); {
	case len(a) == 2 && a[0] == "recv":
		err = receive(ctx, *listen, a[1])
	case len(a) == 3 && a[0] == "send":
		err = send(ctx, a[2], a[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// add counts bytes, and prints how many there are once a second.
func (t *trailer) add(b []byte, last *time.Time) {
	t.Bytes, t.CRC = t.Bytes+int64(len(b)), crc32.Update(t.CRC, crc32.MakeTable(crc32.Castagnoli), b)
	if time.Since(*last) >= time.Second {
		*last = time.Now()
		log.Printf("%d bytes", t.Bytes)
	}
}

func send(ctx context.Context, addr, name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := rdma.Dial(ctx, addr, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var t, there trailer
	for start := time.Now(); ; {
		b, err := c.Alloc(1 << 20)
		if err != nil {
			return err
		}
		n, err := f.Read(b.Bytes())
		if err == io.EOF {
			b.Release()
			break
		}
		t.add(b.Bytes()[:n], &start)
		if err := errors.Join(err, b.SetLen(n), c.SendBuffer(ctx, b)); err != nil { // without a copy
			return err
		}
	}
	j, _ := json.Marshal(t) // of such a type, it never fails
	m, err := c.Call(ctx, j)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := json.Unmarshal(m.Bytes(), &there); err != nil || there != t {
		return errors.Join(fmt.Errorf("the receiver has %+v of %+v", there, t), err)
	}
	log.Printf("%s: %d bytes, CRC-32C %08x, the receiver agrees", name, t.Bytes, t.CRC)
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
	defer os.Remove(f.Name())
	defer f.Close()
	var t, want trailer
	m, err := c.Recv(ctx)
	for start := time.Now(); err == nil && !m.IsCall(); m, err = c.Recv(ctx) {
		t.add(m.Bytes(), &start)
		_, err = f.Write(m.Bytes())
		m.Release()
		if err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("before the end of the file: %w", err)
	}
	defer m.Release()
	if err = json.Unmarshal(m.Bytes(), &want); err == nil && want != t {
		err = fmt.Errorf("corrupt: %+v has come of %+v", t, want)
	}
	if err == nil {
		err = errors.Join(f.Close(), os.Rename(f.Name(), name))
	}
	if err != nil {
		t.Err = err.Error()
	}
	j, _ := json.Marshal(t)
	return errors.Join(err, m.Reply(ctx, j))
}
