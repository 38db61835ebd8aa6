package s3rdma

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	headerAuth   = "Authorization"
	headerDate   = "X-Amz-Date"
	headerSHA256 = "X-Amz-Content-Sha256"

	unsignedPayload = "UNSIGNED-PAYLOAD"

	algorithm  = "AWS4-HMAC-SHA256"
	terminator = "aws4_request"
	dayFormat  = "20060102"
	timeFormat = "20060102T150405Z"
)

// An authorization is the header of a request that is signed with AWS Signature Version 4, without the signature.
type authorization struct {
	accessKey, region, service string
	headers                    []string // signed, in lower case
}

// parseAuthorization reports whether the text is of that version.
func parseAuthorization(text string) (a authorization, ok bool) {
	text, ok = strings.CutPrefix(text, algorithm)
	if !ok {
		return a, false
	}
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	// The access key may contain slashes.
	credential := strings.Split(fields["Credential"], "/")
	n := len(credential)
	if n < 5 || credential[n-1] != terminator || fields["SignedHeaders"] == "" {
		return a, false
	}
	a.accessKey = strings.Join(credential[:n-4], "/")
	a.region, a.service = credential[n-3], credential[n-2]
	a.headers = strings.Split(fields["SignedHeaders"], ";")
	return a, true
}

// sign signs a request anew, after its headers have changed: those that were signed before, without Content-Length,
// and all whose names begin with x-amz.
func (a authorization) sign(r *http.Request, secret string, now time.Time) {
	now = now.UTC()
	day := now.Format(dayFormat)
	r.Header.Set(headerDate, now.Format(timeFormat))
	names := a.toSign(r)
	canonical := strings.Join([]string{r.Method, escapePath(r.URL.Path), canonicalQuery(r),
		canonicalHeaders(r, names), strings.Join(names, ";"), r.Header.Get(headerSHA256)}, "\n")
	digest := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{day, a.region, a.service, terminator}, "/")
	text := strings.Join([]string{algorithm, now.Format(timeFormat), scope, hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, a.region, a.service, terminator, text} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	r.Header.Set(headerAuth, fmt.Sprintf("%s Credential=%s/%s, SignedHeaders=%s, Signature=%x", algorithm, a.accessKey,
		scope, strings.Join(names, ";"), key))
}

// toSign returns the names of the headers to sign, sorted.
func (a authorization) toSign(r *http.Request) []string {
	names := []string{"host"}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") || slices.Contains(a.headers, lower) && lower != "content-length" {
			names = append(names, lower)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func canonicalHeaders(r *http.Request, names []string) string {
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	var b strings.Builder
	for _, name := range names {
		values := []string{host}
		if name != "host" {
			values = values[:0]
			for _, v := range r.Header.Values(name) {
				values = append(values, strings.Join(strings.Fields(v), " "))
			}
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	return b.String()
}

func canonicalQuery(r *http.Request) string {
	q := r.URL.Query()
	for _, values := range q {
		slices.Sort(values)
	}
	return strings.ReplaceAll(q.Encode(), "+", "%20")
}

// escapePath escapes all but the characters that RFC 3986 calls unreserved, and slashes.
func escapePath(path string) string {
	if path == "" {
		return "/"
	}
	var b strings.Builder
	for _, c := range []byte(path) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
