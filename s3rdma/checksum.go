package s3rdma

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
)

// checksumText returns a CRC-64/NVME, the checksum that the wire has, as headers have it.
func checksumText(crc uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc))
}

// announces reports whether a request has a checksum of the data, or the algorithm of one.
func announces(h http.Header) bool {
	return len(checksumHeaders(h)) > 0 || h.Get("X-Amz-Checksum-Algorithm") != "" ||
		h.Get("X-Amz-Sdk-Checksum-Algorithm") != ""
}

// digests returns the names of the headers with which a server checks the data.
func digests(h http.Header) []string { return append(checksumHeaders(h), "Content-Md5") }

// checksumHeaders returns the names of the headers that have a checksum of the data.
func checksumHeaders(h http.Header) (names []string) {
	for name := range h {
		if rest, ok := strings.CutPrefix(name, "X-Amz-Checksum-"); ok && rest != "Algorithm" && rest != "Mode" &&
			rest != "Type" {
			names = append(names, name)
		}
	}
	return names
}
