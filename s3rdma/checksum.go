package s3rdma

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"net/http"
	"strings"
)

// nvme is the table of CRC-64/NVME, the checksum that the wire has.
var nvme = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// checksumText returns a checksum as headers have it.
func checksumText(crc uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc))
}

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
