package cm

import (
	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

func init() {
	verbs.EndWith = func(conn, cq any) { conn.(*Conn).id.endsCQ.Store(cq.(*uverbs.CQ)) }
}
