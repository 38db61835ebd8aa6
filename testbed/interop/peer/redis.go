package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/rsocket"
)

// redisClient sends commands and checks the replies.
func redisClient(args []string) error {
	c, err := rsocket.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	ask := func(want string, words ...string) error {
		if _, err := c.Write(encode(words...)); err != nil {
			return err
		}
		return expect(r, want)
	}
	if err := ask("+PONG\r\n", "PING"); err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{0, 1, 100, 10_000, 1 << 20} {
		value := make([]byte, size)
		if _, err := random.Read(value); err != nil {
			return err
		}
		key := "key" + strconv.Itoa(size)
		if err := ask("+OK\r\n", "SET", key, string(value)); err != nil {
			return err
		}
		if err := ask(bulk(value), "GET", key); err != nil {
			return err
		}
	}
	if err := ask("$-1\r\n", "GET", "absent"); err != nil {
		return err
	}
	return pipeline(c, r)
}

// pipeline sends many commands before it reads the replies.
func pipeline(c io.Writer, r io.Reader) error {
	const many = 1000
	var commands, replies bytes.Buffer
	for i := range many {
		commands.Write(encode("INCR", "counter"))
		fmt.Fprintf(&replies, ":%d\r\n", i+1)
	}
	if _, err := c.Write(commands.Bytes()); err != nil {
		return err
	}
	return expect(r, replies.String())
}

// expect reads a reply.
func expect(r io.Reader, want string) error {
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil {
		return fmt.Errorf("after %d of %d bytes of a reply: %w", n, len(want), err)
	}
	if string(got) != want {
		return fmt.Errorf("the reply of %d bytes begins with %.60q, want %.60q", len(want), got, want)
	}
	return nil
}

// encode returns a command in Redis' protocol.
func encode(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = append(b, bulk([]byte(w))...)
	}
	return b
}

func bulk(b []byte) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(b), b) }

// A store has the keys of a server.
type store struct {
	mu     sync.Mutex
	values map[string]string
}

// redisServer serves clients until the process is killed.
func redisServer(args []string) error {
	s := &store{values: map[string]string{}}
	return serve(args[0], func(c net.Conn) error {
		r, w := bufio.NewReader(c), bufio.NewWriter(c)
		for {
			words, err := decode(r)
			if err == io.EOF {
				return w.Flush()
			}
			if err != nil {
				return err
			}
			if _, err := w.WriteString(s.reply(words)); err != nil {
				return err
			}
			if r.Buffered() == 0 {
				if err := w.Flush(); err != nil {
					return err
				}
			}
		}
	})
}

// reply carries out a command.
func (s *store) reply(words []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch command := strings.ToUpper(words[0]); {
	case command == "PING" && len(words) == 1:
		return "+PONG\r\n"
	case command == "ECHO" && len(words) == 2:
		return bulk([]byte(words[1]))
	case command == "SET" && len(words) == 3:
		s.values[words[1]] = words[2]
		return "+OK\r\n"
	case command == "GET" && len(words) == 2:
		if v, ok := s.values[words[1]]; ok {
			return bulk([]byte(v))
		}
		return "$-1\r\n"
	case command == "INCR" && len(words) == 2:
		n, _ := strconv.Atoi(s.values[words[1]]) // absent: 0
		s.values[words[1]] = strconv.Itoa(n + 1)
		return fmt.Sprintf(":%d\r\n", n+1)
	}
	return fmt.Sprintf("-ERR unknown command %q\r\n", words[0])
}

// maxWords and maxBulk limit what a command may have.
const (
	maxWords = 16
	maxBulk  = 16 << 20
)

// decode reads a command: an array, or words on a line.
func decode(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "*") {
		if words := strings.Fields(line); len(words) > 0 {
			return words, nil
		}
		return nil, fmt.Errorf("an empty command")
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 1 || n > maxWords {
		return nil, fmt.Errorf("a command of %q words", line)
	}
	words := make([]string, n)
	for i := range words {
		if words[i], err = decodeBulk(r); err != nil {
			return nil, err
		}
	}
	return words, nil
}

func decodeBulk(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
	if err != nil || n < 0 || n > maxBulk {
		return "", fmt.Errorf("a word of length %q", line)
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(r, b)
	return string(b[:n]), err
}
