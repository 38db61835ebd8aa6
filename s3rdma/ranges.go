package s3rdma

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A span is the part of an object that a GET asks for: from start up to end, or to the end of the object if end is -1.
type span struct {
	start, end int64
	whole      bool // the request has no Range
}

// parseSpan reports whether the Range of a request is one that can be read in parts.
func parseSpan(text string) (s span, ok bool) {
	if text == "" {
		return span{end: -1, whole: true}, true
	}
	text, ok = strings.CutPrefix(text, "bytes=")
	from, to, dash := strings.Cut(text, "-")
	if !ok || !dash {
		return s, false
	}
	s.end = -1
	if to != "" {
		last, err := parseOffset(to)
		if err != nil {
			return s, false
		}
		s.end = last + 1
	}
	start, err := parseOffset(from)
	s.start = start
	return s, err == nil && (s.end < 0 || s.end > s.start)
}

// parseOffset parses an offset in an object.
func parseOffset(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err
}

// setRange sets the Range of a request.
func setRange(h http.Header, start, end int64) {
	h.Set("Range", fmt.Sprintf("bytes=%d-%d", start, end-1))
}

// contentRange parses a Content-Range: the part of the object that a response has, and the length of the object.
func contentRange(h http.Header) (start, end, size int64, ok bool) {
	text, ok := strings.CutPrefix(h.Get("Content-Range"), "bytes ")
	part, total, slash := strings.Cut(text, "/")
	from, to, dash := strings.Cut(part, "-")
	if !ok || !slash || !dash {
		return 0, 0, 0, false
	}
	start, err1 := parseOffset(from)
	last, err2 := parseOffset(to)
	size, err3 := parseOffset(total)
	if err1 != nil || err2 != nil || err3 != nil || last < start || last >= size {
		return 0, 0, 0, false
	}
	return start, last + 1, size, true
}
