package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A kind is a kind of objects that belong to users.
type kind uint8

const (
	noKind kind = iota
	pdKind
	xrcdKind
	mkeyKind
	cqKind
	eqKind
	qpKind
	srqKind // of both kinds, whose numbers are distinct
	sqKind
	rqKind
	rqtKind
	tirKind
	tisKind
	domainKind
	counterKind
	uarKind
	umemKind
	dctKind
	reservedKind // numbers of queue pairs
)

// An objectName names an object.
type objectName struct {
	kind   kind
	number uint32
}

// An owned is what the device knows of an object for its user.
type owned struct {
	user  uint16
	umems [memories]uint32 // by memory; 0 means none
}

// owners are the objects of users, and those with umems.
type owners struct {
	objects map[objectName]*owned
	claimed [memories]uint32 // the umems that the current command uses
}

func newOwners() owners { return owners{objects: make(map[objectName]*owned)} }

// rights describe a command that a user may execute.
type rights struct {
	// What the command creates, destroys, or otherwise is about, if anything.
	// The number of a created object is in the output.
	creates, names, destroys kind
	number                   prm.Field
	// uses returns the objects that the command refers to, if not nil.
	uses func(in []byte) []objectName
	// reserved is a bit that must be 0, because it grants access to all memory.
	reserved prm.Field
}

// userOf returns the user of a command.
func userOf(in []byte) uint16 { return uint16(prm.CmdUID.Get(in)) }

// privileged reports whether a user is the driver, for itself or for all users.
func privileged(user uint16) bool { return user == 0 || user == sharedUser }

// checkOwner checks that the user of a command may execute it: the command is one for users, and
// its objects are the user's. A command may refer to an object that the driver shares. As the
// driver's, an object of another user does not exist for the user.
func (d *Device) checkOwner(opcode uint16, in []byte) error {
	user := userOf(in)
	if privileged(user) {
		return nil
	}
	r, ok := userCommands[opcode]
	switch {
	case !ok:
		return refuse(statusBadOpcode, reasonUser)
	case r.reserved.Width > 0 && r.reserved.Is(in):
		return refuse(statusBadParam, reasonCapability)
	case r.names|r.destroys != noKind:
		if o := d.owners.objects[r.named(in)]; o == nil || o.user != user {
			return refuse(statusBadResource, reasonOwner)
		}
	}
	if r.uses == nil {
		return nil
	}
	for _, name := range r.uses(in) {
		if !d.mayUse(user, name) {
			return refuse(statusBadResource, reasonOwner)
		}
	}
	return nil
}

// mayUse reports whether a user's command may refer to an object. The driver's XRC domains are
// for all users, because several processes can share one.
func (d *Device) mayUse(user uint16, name objectName) bool {
	o := d.owners.objects[name]
	if o == nil {
		return name.kind == xrcdKind
	}
	return o.user == user || o.user == sharedUser
}

// named returns the object that a command is about.
func (r *rights) named(in []byte) objectName {
	return objectName{r.names | r.destroys, get32(r.number, in)}
}

// account records what a command has created or destroyed, and the umems that it uses.
func (d *Device) account(opcode uint16, in, out []byte) {
	r, ok := userCommands[opcode]
	claimed := d.owners.claimed
	switch {
	case !ok:
	case r.creates != noKind:
		if user := userOf(in); user != 0 || claimed != [memories]uint32{} {
			d.owners.objects[objectName{r.creates, get32(r.number, out)}] = &owned{user, claimed}
			d.claim(claimed, 1)
		}
	case r.destroys != noKind:
		if o := d.owners.objects[r.named(in)]; o != nil {
			d.claim(o.umems, -1)
			delete(d.owners.objects, r.named(in))
		}
	case claimed[ringMemory] != 0: // a resized queue
		name := r.named(in)
		o := d.owners.objects[name]
		if o == nil {
			o = new(owned)
			d.owners.objects[name] = o
		}
		d.claim([memories]uint32{ringMemory: o.umems[ringMemory]}, -1)
		o.umems[ringMemory] = claimed[ringMemory]
		d.claim([memories]uint32{ringMemory: o.umems[ringMemory]}, 1)
	}
}

// owns reports whether a user has objects.
func (d *Device) owns(user uint16) bool {
	for _, o := range d.owners.objects {
		if o.user == user {
			return true
		}
	}
	for _, owner := range d.rates {
		if owner == user {
			return true
		}
	}
	return false
}

// userCommands are the commands that users may execute, by opcode.
var userCommands = map[uint16]rights{
	0x100: {}, // QUERY_HCA_CAP
	0x101: {}, // QUERY_ADAPTER
	0x10a: {}, // QUERY_ISSI
	0x750: {}, // QUERY_VPORT_STATE
	0x754: {}, // QUERY_NIC_VPORT_CONTEXT
	0x760: {}, // QUERY_ROCE_ADDRESS
	0x762: {}, // QUERY_HCA_VPORT_CONTEXT
	0x770: {}, // QUERY_VPORT_COUNTER
	0x80d: {}, // NOP
	0x780: {}, // SET_PP_RATE_LIMIT: see checkRate
	0x842: {}, // QUERY_LAG

	0x200: {creates: mkeyKind, number: prm.CreateMKeyOutMKeyIndex, uses: list(pdOf(prm.MKCPD, prm.CreateMKeyInMKC))},
	0x201: {names: mkeyKind, number: prm.QueryMKeyInMKeyIndex},
	0x202: {destroys: mkeyKind, number: prm.DestroyMKeyInMKeyIndex},
	0x301: {creates: eqKind, number: prm.CreateEQOutEQNumber},
	0x302: {destroys: eqKind, number: prm.DestroyEQInEQNumber},
	0x400: {creates: cqKind, number: prm.CreateCQOutCQN,
		uses: list(use{eqKind, prm.CQCCEQN.Within(prm.CreateCQInCQC), nil})},
	0x401: {destroys: cqKind, number: prm.DestroyCQInCQN},
	0x402: {names: cqKind, number: prm.QueryCQInCQN},
	0x403: {names: cqKind, number: prm.ModifyCQInCQN},
	0x771: {creates: counterKind, number: prm.AllocQCounterOutCounterSetID},
	0x772: {destroys: counterKind, number: prm.DeallocQCounterInCounterSetID},
	0x773: {names: counterKind, number: prm.QueryQCounterInCounterSetID},
	0x800: {creates: pdKind, number: prm.AllocPDOutPD},
	0x801: {destroys: pdKind, number: prm.DeallocPDInPD},
	0x802: {creates: uarKind, number: prm.AllocUAROutUAR},
	0x803: {destroys: uarKind, number: prm.DeallocUARInUAR},
	0x80e: {creates: xrcdKind, number: prm.AllocXRCDOutXRCD},
	0x80f: {destroys: xrcdKind, number: prm.DeallocXRCDInXRCD},
	0x816: {creates: domainKind, number: prm.AllocTransportDomainOutTransportDomain},
	0x817: {destroys: domainKind, number: prm.DeallocTransportDomainInTransportDomain},
	0xa00: {creates: reservedKind, number: prm.GeneralObjectOutObjID},
	0xa03: {destroys: reservedKind, number: prm.GeneralObjectInObjID},
	0xa08: {creates: umemKind, number: prm.CreateUMemOutUMemID},
	0xa0a: {destroys: umemKind, number: prm.DestroyUMemInUMemID},

	0x500: {creates: qpKind, number: prm.CreateQPOutQPN, uses: usesOfQP, reserved: prm.QPCRLKY.Within(prm.CreateQPInQPC)},
	0x501: {destroys: qpKind, number: prm.DestroyQPInQPN},
	0x502: {names: qpKind, number: prm.ModifyQPInQPN},
	0x503: {names: qpKind, number: prm.ModifyQPInQPN},
	0x504: {names: qpKind, number: prm.ModifyQPInQPN},
	0x505: {names: qpKind, number: prm.ModifyQPInQPN},
	0x506: {names: qpKind, number: prm.ModifyQPInQPN},
	0x507: {names: qpKind, number: prm.MoveQPInQPN},
	0x50a: {names: qpKind, number: prm.MoveQPInQPN},
	0x50b: {names: qpKind, number: prm.QueryQPInQPN},
	0x50c: {names: qpKind, number: prm.ModifyQPInQPN},
	0x50e: {names: qpKind, number: prm.ModifyQPInQPN},
	0x806: {names: qpKind, number: prm.AttachToMCGInQPN},
	0x807: {names: qpKind, number: prm.DetachFromMCGInQPN},

	0x710: {creates: dctKind, number: prm.CreateDCTOutDCTN, uses: list(
		pdOf(prm.DCTCPD, prm.CreateDCTInDCTC),
		use{srqKind, prm.DCTCSRQN.Within(prm.CreateDCTInDCTC), nil},
		use{cqKind, prm.DCTCCQN.Within(prm.CreateDCTInDCTC), nil},
		use{counterKind, prm.DCTCCounterSetID.Within(prm.CreateDCTInDCTC), func(in []byte) bool {
			return prm.DCTCCounterSetID.Is(prm.CreateDCTInDCTC.Bytes(in))
		}},
	), reserved: prm.DCTCRLKY.Within(prm.CreateDCTInDCTC)},
	0x711: {destroys: dctKind, number: prm.DCTInDCTN},
	0x712: {names: dctKind, number: prm.DCTInDCTN},
	0x713: {names: dctKind, number: prm.DCTInDCTN},
	0x714: {names: dctKind, number: prm.DCTInDCTN},

	0x705: {creates: srqKind, number: prm.CreateXRCSRQOutXRCSRQN, uses: list(
		pdOf(prm.XRCSRQCPD, prm.CreateXRCSRQInXRCSRQC),
		use{xrcdKind, prm.XRCSRQCXRCD.Within(prm.CreateXRCSRQInXRCSRQC), nil},
		use{cqKind, prm.XRCSRQCCQN.Within(prm.CreateXRCSRQInXRCSRQC), nil},
	), reserved: prm.XRCSRQCRLKY.Within(prm.CreateXRCSRQInXRCSRQC)},
	0x706: {destroys: srqKind, number: prm.DestroyXRCSRQInXRCSRQN},
	0x707: {names: srqKind, number: prm.QueryXRCSRQInXRCSRQN},
	0x708: {names: srqKind, number: prm.ArmXRCSRQInXRCSRQN},
	0x90c: {creates: srqKind, number: prm.CreateRMPOutRMPN,
		uses: list(pdOf(prm.WQPD.Within(prm.RMPCWQ), prm.CreateRMPInRMPC))},
	0x90d: {names: srqKind, number: prm.ModifyRMPInRMPN},
	0x90e: {destroys: srqKind, number: prm.DestroyRMPInRMPN},
	0x90f: {names: srqKind, number: prm.QueryRMPInRMPN},

	0x900: {creates: tirKind, number: prm.CreateTIROutTIRN, uses: usesOfTIR},
	0x901: {names: tirKind, number: prm.ModifyTIRInTIRN},
	0x902: {destroys: tirKind, number: prm.DestroyTIRInTIRN},
	0x904: {creates: sqKind, number: prm.CreateSQOutSQN, uses: list(
		pdOf(prm.WQPD.Within(prm.SQCWQ), prm.CreateSQInSQC),
		use{cqKind, prm.SQCCQN.Within(prm.CreateSQInSQC), nil},
		use{tisKind, prm.SQCTISNum0.Within(prm.CreateSQInSQC), nil},
	), reserved: prm.SQCRLKY.Within(prm.CreateSQInSQC)},
	0x905: {names: sqKind, number: prm.ModifySQInSQN},
	0x906: {destroys: sqKind, number: prm.DestroySQInSQN},
	0x907: {names: sqKind, number: prm.QuerySQInSQN},
	0x908: {creates: rqKind, number: prm.CreateRQOutRQN, uses: list(
		pdOf(prm.WQPD.Within(prm.RQCWQ), prm.CreateRQInRQC),
		use{cqKind, prm.RQCCQN.Within(prm.CreateRQInRQC), nil},
	), reserved: prm.RQCRLKY.Within(prm.CreateRQInRQC)},
	0x909: {names: rqKind, number: prm.ModifyRQInRQN},
	0x90a: {destroys: rqKind, number: prm.DestroyRQInRQN},
	0x90b: {names: rqKind, number: prm.QueryRQInRQN},
	0x912: {creates: tisKind, number: prm.CreateTISOutTISN,
		uses: list(use{domainKind, prm.TISCTransportDomain.Within(prm.CreateTISInTISC), nil})},
	0x913: {names: tisKind, number: prm.ModifyTISInTISN},
	0x914: {destroys: tisKind, number: prm.DestroyTISInTISN},
	0x915: {names: tisKind, number: prm.QueryTISInTISN},
	0x916: {creates: rqtKind, number: prm.CreateRQTOutRQTN, uses: usesOfRQT(prm.CreateRQTInRQTC)},
	0x917: {names: rqtKind, number: prm.ModifyRQTInRQTN, uses: usesOfRQT(prm.ModifyRQTInRQTC)},
	0x918: {destroys: rqtKind, number: prm.DestroyRQTInRQTN},
}

// A use is a field with the number of an object. The command refers to it if when is nil or
// returns true.
type use struct {
	kind  kind
	field prm.Field
	when  func(in []byte) bool
}

func pdOf(f, within prm.Field) use { return use{pdKind, f.Within(within), nil} }

// list returns the function for rights.uses.
func list(uses ...use) func(in []byte) []objectName {
	return func(in []byte) (names []objectName) {
		for _, u := range uses {
			if u.when == nil || u.when(in) {
				names = append(names, objectName{u.kind, get32(u.field, in)})
			}
		}
		return names
	}
}

// usesOfQP returns the objects that CREATE_QP refers to. The driver sets further ones, which
// have no effect, to objects of its own.
var usesOfQP = list(
	pdOf(prm.QPCPD, prm.CreateQPInQPC),
	use{xrcdKind, prm.QPCXRCD.Within(prm.CreateQPInQPC), isXRC},
	use{cqKind, prm.QPCCQNSnd.Within(prm.CreateQPInQPC), func(in []byte) bool { return !prm.QPCNoSQ.Is(qpcOf(in)) }},
	use{cqKind, prm.QPCCQNRcv.Within(prm.CreateQPInQPC), func(in []byte) bool {
		return mayReceive(in) && engine.Source(prm.QPCRQType.Get(qpcOf(in))) <= engine.FromSRQ
	}},
	use{srqKind, prm.QPCSRQNRMPNXRQN.Within(prm.CreateQPInQPC), func(in []byte) bool {
		return mayReceive(in) && engine.Source(prm.QPCRQType.Get(qpcOf(in))) == engine.FromSRQ
	}},
	use{counterKind, prm.QPCCounterSetID.Within(prm.CreateQPInQPC), func(in []byte) bool {
		return prm.QPCCounterSetID.Is(qpcOf(in))
	}},
)

func qpcOf(in []byte) []byte { return prm.CreateQPInQPC.Bytes(in) }

// mayReceive reports whether the queue pair uses its receive queue or SRQ.
func mayReceive(in []byte) bool {
	return !isXRC(in) && engine.Service(prm.QPCST.Get(qpcOf(in))) != engine.ServiceDCI
}

func isXRC(in []byte) bool { return engine.Service(prm.QPCST.Get(qpcOf(in))) == engine.ServiceXRC }

// usesOfTIR returns the objects that CREATE_TIR refers to. A TIR may have no transport domain.
var usesOfTIR = list(
	use{domainKind, prm.TIRCTransportDomain.Within(prm.CreateTIRInTIRC), func(in []byte) bool {
		return prm.TIRCTransportDomain.Is(prm.CreateTIRInTIRC.Bytes(in))
	}},
	use{rqKind, prm.TIRCInlineRQN.Within(prm.CreateTIRInTIRC), func(in []byte) bool {
		return prm.TIRCDispType.Get(prm.CreateTIRInTIRC.Bytes(in)) == dispDirect
	}},
	use{rqtKind, prm.TIRCIndirectTable.Within(prm.CreateTIRInTIRC), func(in []byte) bool {
		return prm.TIRCDispType.Get(prm.CreateTIRInTIRC.Bytes(in)) == dispIndirect
	}},
)

// usesOfRQT returns the function for the receive queues of a table whose context is at within.
func usesOfRQT(within prm.Field) func(in []byte) []objectName {
	return func(in []byte) (names []objectName) {
		entries := prm.RQTCRQNum.Within(within)
		n := min(int(prm.RQTCRQTActualSize.Get(within.Bytes(in))), len(entries.Rest(in))/4)
		for i := range n {
			names = append(names, objectName{rqKind, get32(entries.At(i), in) & 0xffffff})
		}
		return names
	}
}
