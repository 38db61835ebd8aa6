package uverbs

// A cqUse has what completes in a CQ.
type cqUse struct {
	senders   []*QP // QPs whose sends do
	receivers []*QP // QPs without an SRQ whose receives do
	shared    map[*SRQ]bool
	others    int // receives for which queues of other packages have room
}

// use returns what completes in q.
func (c *Context) use(q *CQ) cqUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := cqUse{shared: make(map[*SRQ]bool)}
	for v := range c.ids.all {
		switch o := v.(type) {
		case *QP:
			if !c.objects.has(&o.object) {
				continue // it is being created
			}
			if o.cfg.SendCQ == q {
				u.senders = append(u.senders, o)
			}
			switch {
			case o.cfg.RecvCQ != q:
			case o.cfg.SRQ != nil:
				u.shared[o.cfg.SRQ] = true
			default:
				u.receivers = append(u.receivers, o)
			}
		case *SRQ:
			if o.cq == q {
				u.shared[o] = true
			}
		case *extension:
			if o.cfg.Receives == nil || !c.objects.has(&o.object) {
				continue
			}
			if cq, n := o.cfg.Receives(); cq == q {
				u.others += n
			}
		}
	}
	return u
}

// sharedRecvs returns the number of receives for which SRQs and queues of other packages have room.
func (u *cqUse) sharedRecvs() int {
	n := u.others
	for s := range u.shared {
		n += s.MaxWR()
	}
	return n
}

// expected returns how many completions can at most be in q if it is not polled and nothing more is
// posted. The caller uses one of the QPs, of. Queues that another goroutine may use at the moment count
// as full, so that expected does not wait for their batches.
func (q *CQ) expected(of *QP) int {
	u := q.ctx.use(q)
	n := u.sharedRecvs()
	for _, o := range u.senders {
		switch {
		case o == of:
			n += o.SendsOutstanding()
		case !o.single && o.sq.TryLock():
			n += o.sendsOutstanding()
			o.sq.Unlock()
		default:
			n += o.cap.MaxSendWR
		}
	}
	for _, o := range u.receivers {
		switch {
		case o == of:
			n += o.RecvsOutstanding()
		case !o.single && o.rq.TryLock():
			n += o.recvsOutstanding()
			o.rq.Unlock()
		default:
			n += o.cap.MaxRecvWR
		}
	}
	return n
}
