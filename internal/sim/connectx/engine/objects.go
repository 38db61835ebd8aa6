package engine

// Objects are the numbers of objects of each kind.
type Objects struct {
	PDs        int `json:"pds,omitempty"`
	XRCDs      int `json:"xrcds,omitempty"`
	MKeys      int `json:"mkeys,omitempty"`
	CQs        int `json:"cqs,omitempty"`
	QPs        int `json:"qps,omitempty"`
	SRQs       int `json:"srqs,omitempty"`
	SQs        int `json:"sqs,omitempty"`
	RQs        int `json:"rqs,omitempty"`
	TISs       int `json:"tiss,omitempty"`
	TIRs       int `json:"tirs,omitempty"`
	RQTs       int `json:"rqts,omitempty"`
	FlowTables int `json:"flow_tables,omitempty"`

	DeviceMemory int `json:"device_memory,omitempty"`

	Translations int `json:"translations,omitempty"` // bytes of memory keys' lists
}

// Objects returns the numbers of the host's objects.
func (h *HCA) Objects() Objects {
	return Objects{
		PDs: len(h.pds.objects), XRCDs: len(h.xrcds.objects), MKeys: len(h.mkeys.objects), CQs: len(h.cqs.objects),
		QPs: len(h.qps.objects), SRQs: len(h.srqs.objects), SQs: len(h.eth.sqs.objects), RQs: len(h.eth.rqs.objects),
		TISs: len(h.eth.tiss.objects), TIRs: len(h.eth.tirs.objects), RQTs: len(h.eth.rqts.objects),
		FlowTables: len(h.eth.tables.objects), DeviceMemory: len(h.memory), Translations: h.translations,
	}
}
