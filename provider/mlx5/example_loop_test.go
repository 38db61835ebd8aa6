package mlx5_test

import "github.com/goverbs/goverbs/uverbs"

// loopQP returns an RC QP that is connected with itself.
func loopQP(pd *uverbs.PD) *uverbs.QP {
	cq := must(pd.Context().CreateCQ(uverbs.CQConfig{Entries: 64}))
	qp := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 32, MaxRecvWR: 32, MaxInline: 64,
		Access: uverbs.RemoteRead | uverbs.RemoteWrite}))
	if err := qp.Connect(must(qp.Endpoint())); err != nil {
		panic(err)
	}
	return qp
}
