package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
)

// A store has the objects, which are files of a directory.
type store struct{ root *os.Root }

func (s store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.get(w, r, name)
	case http.MethodPut:
		s.put(w, r, name)
	default:
		http.Error(w, "want GET, HEAD or PUT", http.StatusMethodNotAllowed)
	}
}

func (s store) get(w http.ResponseWriter, r *http.Request, name string) {
	f, err := s.root.Open(name)
	if err != nil {
		http.Error(w, "no such object", http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.Error(w, "no such object", http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())) // parts are of one object
	http.ServeContent(w, r, name, info.ModTime(), f)                                       // with ranges and conditions
}

func (s store) put(w http.ResponseWriter, r *http.Request, name string) {
	part := ".part-" + rand.Text()
	f, err := s.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		defer s.root.Remove(part) // unless it was renamed
		_, err = io.Copy(f, r.Body)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err == nil {
		err = s.root.Rename(part, name)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
