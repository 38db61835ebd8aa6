package connectx

import "github.com/goverbs/goverbs/testbed/connectx/prm"

// reservedLKey is the key of all of the host's memory.
const reservedLKey = 0x200

func (d *Device) querySpecialContexts(in, out []byte) error {
	prm.QuerySpecialContextsOutResdLKey.Set(out, reservedLKey)
	return nil
}

func engineStatus(err error) status { return statusInternal }

func (d *Device) storeUAR(page, offset uint32, p []byte) {}
