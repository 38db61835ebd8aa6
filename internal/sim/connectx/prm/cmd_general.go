package prm

// Types of general objects: bits of HCACapGeneralObjTypes.
const ObjectReservedQPN = 0x2c

// The commands of general objects. What follows the header depends on the type.
var (
	GeneralObjectIn            = input("general_obj", 0x10)
	GeneralObjectInObjType     = GeneralObjectIn.alias("obj_type", 0x6, 0, 16)
	GeneralObjectInObjID       = GeneralObjectIn.field("obj_id", 0x8, 0, 32)
	GeneralObjectInLogObjRange = GeneralObjectIn.field("log_obj_range", 0xc, 3, 5)
)

var (
	GeneralObjectOut      = output("general_obj", 0x10)
	GeneralObjectOutObjID = GeneralObjectOut.field("obj_id", 0x8, 0, 32)
)
