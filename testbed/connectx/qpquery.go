package connectx

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

func (d *Device) queryQP(in, out []byte) error {
	a, err := d.hca.QueryQP(get32(prm.QueryQPInQPN, in))
	if err != nil {
		return err
	}
	c := prm.QueryQPOutQPC.Bytes(out)
	encodeQueues(c, &a)
	encodeConnection(c, &a)
	prm.QueryQPOutECE.Set(out, uint64(a.ECE))
	d.encodePath(prm.QPCPrimary.Bytes(c), &a.Primary, a.AckTimeout)
	d.encodePath(prm.QPCSecondary.Bytes(c), &a.Alternate, 0)
	return nil
}

// encodeQueues encodes the attributes of CREATE_QP.
func encodeQueues(c []byte, a *engine.QPAttr) {
	prm.QPCState.Set(c, uint64(a.State))
	prm.QPCST.Set(c, uint64(a.Service))
	prm.QPCPD.Set(c, uint64(a.PD))
	prm.QPCUARPage.Set(c, uint64(a.UAR))
	prm.QPCUserIndex.Set(c, uint64(a.UserIndex))
	prm.QPCCQNSnd.Set(c, uint64(a.SendCQ))
	prm.QPCCQNRcv.Set(c, uint64(a.RecvCQ))
	prm.QPCXRCD.Set(c, uint64(a.XRCD))
	prm.QPCRQType.Set(c, uint64(a.Source))
	prm.QPCSRQNRMPNXRQN.Set(c, uint64(a.SRQ))
	prm.QPCNoSQ.SetBool(c, a.NoSQ)
	prm.QPCLogSQSize.Set(c, uint64(a.LogSQSize))
	prm.QPCLogRQSize.Set(c, uint64(a.LogRQSize))
	if a.LogRQStride >= strideBase {
		prm.QPCLogRQStride.Set(c, uint64(a.LogRQStride-strideBase))
	}
	if a.Buffer.PageShift >= 12 {
		prm.QPCLogPageSize.Set(c, uint64(a.Buffer.PageShift-12))
		prm.QPCPageOffset.Set(c, a.Buffer.Offset>>(a.Buffer.PageShift-6))
	}
	prm.QPCDBRAddr.Set(c, a.Record)
	prm.QPCRLKY.SetBool(c, a.ReservedLKey)
	prm.QPCDethSqpn.Set(c, uint64(a.SourceQPN))
	prm.QPCBlockLBMC.SetBool(c, a.BlockLoopback)
	prm.QPCLogNumDCIStreamChannels.Set(c, uint64(a.LogStreams))
	prm.QPCLogNumDCIErroredStreams.Set(c, uint64(a.LogErrored))
}

// encodeConnection encodes the attributes of transitions.
func encodeConnection(c []byte, a *engine.QPAttr) {
	if a.MTU >= 1<<mtuBase {
		prm.QPCMTU.Set(c, uint64(bits.Len(uint(a.MTU))-1-mtuBase))
	}
	for code, state := range migrations {
		if state == a.Migration {
			prm.QPCPMState.Set(c, code)
		}
	}
	prm.QPCLogMsgMax.Set(c, 30)
	prm.QPCRemoteQPN.Set(c, uint64(a.RemoteQPN))
	prm.QPCNextSendPSN.Set(c, uint64(a.SendPSN))
	prm.QPCNextRcvPSN.Set(c, uint64(a.RecvPSN))
	prm.QPCRetryCount.Set(c, uint64(a.RetryCount))
	prm.QPCRNRRetry.Set(c, uint64(a.RNRRetry))
	prm.QPCMinRNRNak.Set(c, uint64(a.MinRNRTimer))
	prm.QPCLogSRAMax.Set(c, logOf(a.MaxInitiate))
	prm.QPCLogRRAMax.Set(c, logOf(a.MaxRespond))
	prm.QPCQKey.Set(c, uint64(a.QKey))
	prm.QPCLAGTXPortAffinity.Set(c, uint64(a.LAGPort))
	qpOrder.set(c, ordering(a.Ordering))
	prm.QPCRRE.SetBool(c, a.RemoteRead)
	prm.QPCRWE.SetBool(c, a.RemoteWrite)
	prm.QPCRAE.SetBool(c, a.RemoteAtomic)
}

// logOf returns the logarithm of n, a power of two or 0.
func logOf(n int) uint64 { return uint64(max(0, bits.Len(uint(n))-1)) }
