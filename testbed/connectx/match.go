package connectx

import "github.com/goverbs/goverbs/internal/sim/connectx/prm"

// matched has the match fields that flows can use: capabilities, and the
// corresponding fields. The engine fills them in for each packet.
var matched = []struct {
	claim  prm.Field
	fields []prm.Field // of prm.FlowMatch
}{
	{prm.FlowFieldsOuterDMAC, outer(prm.FlowHeadersDMAC)},
	{prm.FlowFieldsOuterSMAC, outer(prm.FlowHeadersSMAC)},
	{prm.FlowFieldsOuterEthertype, outer(prm.FlowHeadersEthertype)},
	{prm.FlowFieldsOuterIPVersion, outer(prm.FlowHeadersIPVersion)},
	{prm.FlowFieldsOuterFirstPrio, outer(prm.FlowHeadersFirstPrio)},
	{prm.FlowFieldsOuterFirstCFI, outer(prm.FlowHeadersFirstCFI)},
	{prm.FlowFieldsOuterFirstVid, outer(prm.FlowHeadersFirstVid, prm.FlowHeadersCvlanTag, prm.FlowHeadersSvlanTag)},
	{prm.FlowFieldsOuterIPV4TTL, outer(prm.FlowHeadersTTLHoplimit)},
	{prm.FlowFieldsOuterSIP, outer(prm.FlowHeadersSrcIP)},
	{prm.FlowFieldsOuterDIP, append(outer(prm.FlowHeadersDstIP, prm.FlowHeadersIPV4Ihl),
		prm.FlowMiscOuterIPV6FlowLabel.Within(prm.FlowMatchMisc))},
	{prm.FlowFieldsOuterFrag, outer(prm.FlowHeadersFrag)},
	{prm.FlowFieldsOuterIPProtocol, outer(prm.FlowHeadersIPProtocol)},
	{prm.FlowFieldsOuterIPECN, outer(prm.FlowHeadersIPECN)},
	{prm.FlowFieldsOuterIPDSCP, outer(prm.FlowHeadersIPDSCP)},
	{prm.FlowFieldsOuterUDPSport, outer(prm.FlowHeadersUDPSport)},
	{prm.FlowFieldsOuterUDPDport, outer(prm.FlowHeadersUDPDport)},
	{prm.FlowFieldsOuterTCPSport, outer(prm.FlowHeadersTCPSport)},
	{prm.FlowFieldsOuterTCPDport, outer(prm.FlowHeadersTCPDport)},
	{prm.FlowFieldsOuterTCPFlags, outer(prm.FlowHeadersTCPFlags)},
}

// outer returns fields of the outer headers.
func outer(fields ...prm.Field) []prm.Field {
	for i, f := range fields {
		fields[i] = f.Within(prm.FlowMatchOuter)
	}
	return fields
}

// offerMatches sets the capabilities of match fields.
func offerMatches(page []byte) {
	table := prm.FlowTableNICCapReceive.Bytes(page)
	for _, f := range []prm.Field{prm.FlowTableCapFtFieldSupport, prm.FlowTableCapFtFieldBitmaskSupport} {
		for _, m := range matched {
			m.claim.Set(f.Bytes(table), 1)
		}
	}
}

// matchable has the bits that flows can match.
var matchable = func() (bits [512]byte) {
	for _, m := range matched {
		for _, f := range m.fields {
			if f.Width <= 64 {
				f.Set(bits[:], 1<<f.Width-1)
				continue
			}
			for i := range f.Bytes(bits[:]) {
				f.Bytes(bits[:])[i] = 0xff
			}
		}
	}
	return bits
}()

// checkMatch refuses a mask with other fields. criteria selects the parts of
// the mask, of 64 bytes each.
func checkMatch(mask []byte, criteria uint64) error {
	for i, b := range mask {
		if criteria>>(i/prm.FlowHeaders.Size)&1 != 0 && b&^matchable[i] != 0 {
			return refuse(statusBadParam, reasonCapability)
		}
	}
	return nil
}
