package s3rdma

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

const (
	headerDecoded  = "X-Amz-Decoded-Content-Length"
	headerTrailer  = "X-Amz-Trailer"
	headerEncoding = "Content-Encoding"

	awsChunked = "aws-chunked"
)

// isChunked reports whether the body of a request has the encoding aws-chunked.
func isChunked(h http.Header) bool { return strings.HasPrefix(h.Get(headerSHA256), "STREAMING-") }

// readChunked reads a body with the encoding aws-chunked, which has exactly len(b) bytes of data, into b. It returns
// the trailer.
func readChunked(body io.Reader, b []byte) (trailer http.Header, err error) {
	r := bufio.NewReader(body)
	for {
		n, err := chunkSize(r)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if n > len(b) {
			return nil, fmt.Errorf("s3rdma: a chunk of %d bytes, but only %d of %s remain", n, len(b), headerDecoded)
		}
		if _, err := io.ReadFull(r, b[:n]); err != nil {
			return nil, err
		}
		b = b[n:]
		if line, err := r.ReadString('\n'); err != nil || strings.TrimSpace(line) != "" {
			return nil, fmt.Errorf("s3rdma: %q after a chunk, want the end of the line (%w)", line, noEOF(err))
		}
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("s3rdma: the body ends %d bytes before %s: %w", len(b), headerDecoded, io.ErrUnexpectedEOF)
	}
	h, err := textproto.NewReader(r).ReadMIMEHeader()
	if err == io.EOF { // some clients send no empty line
		err = nil
	}
	return http.Header(h), err
}

// maxChunkLine limits the line in front of a chunk: a size, and a signature of 64 digits.
const maxChunkLine = 256

func chunkSize(r *bufio.Reader) (int, error) {
	line, err := r.ReadSlice('\n')
	if err != nil || len(line) > maxChunkLine {
		return 0, fmt.Errorf("s3rdma: the body is not %s: %w", awsChunked, noEOF(err))
	}
	text, _, _ := strings.Cut(strings.TrimSpace(string(line)), ";")
	n, err := strconv.ParseUint(text, 16, 31)
	if err != nil {
		return 0, fmt.Errorf("s3rdma: the body is not %s: %w", awsChunked, err)
	}
	return int(n), nil
}

var errChunked = errors.New("malformed chunk")

// noEOF returns the error of a body that ends too early, or is malformed.
func noEOF(err error) error {
	if err == nil {
		return errChunked
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// unchunk changes the headers of a request to those of the decoded body, with the checksums of the trailer.
func unchunk(h http.Header, trailer http.Header) {
	h.Del(headerDecoded)
	h.Del(headerTrailer)
	h.Del("Trailer")
	var rest []string
	for _, coding := range strings.Split(h.Get(headerEncoding), ",") {
		if coding = strings.TrimSpace(coding); coding != "" && coding != awsChunked {
			rest = append(rest, coding)
		}
	}
	h.Del(headerEncoding)
	if len(rest) > 0 {
		h.Set(headerEncoding, strings.Join(rest, ","))
	}
	for _, name := range checksumHeaders(trailer) {
		h.Set(name, strings.TrimSpace(trailer.Get(name)))
	}
}
