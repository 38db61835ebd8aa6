package main

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// A store is an S3 server that keeps one object in memory, whatever its name.
type store struct {
	mu     sync.Mutex
	object []byte
	sum    string // its checksum, if the client has sent one
}

const headerSum = "X-Amz-Checksum-Crc64nvme"

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("ETag", `"etag"`)
	if r.Method != http.MethodPut {
		if s.sum != "" {
			w.Header().Set(headerSum, s.sum)
		}
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(s.object))
		return
	}
	n := int(r.ContentLength)
	if n < 0 || n > largest {
		http.Error(w, "the length is missing or too large", http.StatusBadRequest)
		return
	}
	if cap(s.object) < n {
		s.object = make([]byte, largest)
	}
	s.object, s.sum = s.object[:n], r.Header.Get(headerSum)
	if _, err := io.ReadFull(r.Body, s.object); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
