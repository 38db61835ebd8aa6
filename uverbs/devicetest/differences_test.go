package devicetest

// differences has the tests that run only on devices of the kernel, with the reason. The names are those of tests
// without TestDevice, or of their subtests.
var differences = map[string]string{
	"Killed":          "the objects of a killed process are released by the kernel",
	"Memlock":         processes,
	"MemlockOfQueue":  processes,
	"ODPMemlock":      processes,
	"RawPacketRights": processes,
	"ParityFork":      "the memory of a child process is copied by the kernel",
	"WCFields":        "the test is of the driver rxe",

	"GIDs":                       kernelFiles,
	"ParityDevice":               kernelFiles,
	"Mcast":                      interfaces,
	"PortEvents":                 interfaces,
	"UDMTU":                      interfaces,
	"AHExplained":                interfaces,
	"Events/port_active":         interfaces,
	"Events/port_error":          interfaces,
	"Events/GID_change":          interfaces,
	"Events/device_speed_change": interfaces,

	"NothingAllocated": allocations,
	"Allocations":      allocations,

	"ODP":         onDemandPaging,
	"ODPOffset":   onDemandPaging,
	"ODPHeap":     onDemandPaging,
	"ODPImplicit": onDemandPaging,
	"Advise":      onDemandPaging,
	"ParityODP":   onDemandPaging,

	"ParityAtomic":   violations,
	"UCRevive":       violations,
	"CQOverrunEvent": violations,
	"Events":         violations,
	"StressClose":    violations,

	"ReregAccess":      "the machine has no REREG_MR",
	"ReregPD":          "the machine has no REREG_MR",
	"ReregTranslation": "the machine has no REREG_MR",
	"ParityMR":         "the machine has no REREG_MR",
	"NullMR":           "the machine has no null key",
	"ParitySharedPD":   "the machine has no second context of a descriptor",
	"XRC":              "the machine has no OPEN_QP",
	"XRCShared":        "the machine has no OPEN_QP",
	"XRCSRQ":           "the machine has no OPEN_QP",
	"Refusals":         "the machine has neither a speed of the port nor moderation",
	"SRQLimit":         "QUERY_SRQ of the machine returns the limit after its event",

	"Path":           queryQP,
	"QueryQP":        queryQP,
	"UDQKey":         queryQP,
	"RemoteErrors":   queryQP,
	"UDShortReceive": queryQP,
	"ParityQP":       queryQP,

	"ParityQPEx":          "queues of the device have room for more SGEs than requested",
	"ParityFlow":          rawPackets,
	"ParityRSS":           rawPackets,
	"ParityTimestamp":     rawPackets,
	"RawPacket":           rawPackets,
	"RawPacketVLAN":       rawPackets,
	"RawPacketStates":     rawPackets,
	"RawPacketTimestamps": rawPackets,
	"WQ":                  rawPackets,
}

// Reasons of several tests.
const (
	processes      = "rights and limits of processes are enforced by the kernel"
	kernelFiles    = "the test compares with the kernel's files in sysfs"
	interfaces     = "the test changes a network interface of the kernel, or uses its routes"
	allocations    = "the allocations of the device are counted as well"
	onDemandPaging = "the machine has no on-demand paging"
	violations     = "the test breaks a rule for adapters, which the machine reports as an error"
	queryQP        = "QUERY_QP of the machine returns the state that the program has set, and no attributes"
	rawPackets     = "the machine has no raw packets"
)
