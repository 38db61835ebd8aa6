package prm

// The context of a user, whose number is the field uid of its commands.
var (
	Uctx    = layout("uctx", 0x30)
	UctxCap = Uctx.field("cap", 0x0, 0, 32)
)

var (
	CreateUctxIn     = input("create_uctx", 0x40)
	CreateUctxInUctx = CreateUctxIn.nest("uctx", 0x10, Uctx)
)

var (
	CreateUctxOut    = output("create_uctx", 0x10)
	CreateUctxOutUID = CreateUctxOut.field("uid", 0xa, 0, 16)
)

var (
	DestroyUctxIn    = input("destroy_uctx", 0x10)
	DestroyUctxInUID = DestroyUctxIn.field("destroyed_uid", 0xa, 0, 16)
)

var DestroyUctxOut = output("destroy_uctx", 0x10)
