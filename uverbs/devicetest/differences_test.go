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
	"Events/GID_table_change":    interfaces,
	"Events/device_speed_change": interfaces,

	"ParityTimestamp":     deviceClock,
	"RawPacketTimestamps": deviceClock,
	"XRC":                 sharedDomains,
	"XRCShared":           sharedDomains,
	"XRCSRQ":              sharedDomains,

	"NothingAllocated": allocations,
	"Allocations":      allocations,

	"ODP":         onDemandPaging,
	"ODPOffset":   onDemandPaging,
	"ODPHeap":     onDemandPaging,
	"ODPImplicit": onDemandPaging,
	"Advise":      onDemandPaging,
	"ParityODP":   onDemandPaging,

	"ParitySharedPD": "the machine has no second context of a descriptor",
}

// ethernetOnly has the tests that machines in memory run on Ethernet only, with the reason.
var ethernetOnly = map[string]string{
	"EveryGID": "the port has one GID, which is not an address of RoCE",
}

// broken has the rules for adapters that tests break: a test closes memory that requests use, or lets a CQ overrun.
var broken = map[string][]string{
	"Events":         {"key", "cq-overrun"},
	"CQOverrunEvent": {"cq-overrun"},
	"ParityAtomic":   {"key"},
	"ParityMR":       {"key"},
	"RemoteErrors":   {"key"},
	"UCRevive":       {"key"},
	"CloseRace":      {"key", "blueflame"},
	"StressClose":    {"key", "blueflame"},
}

// Reasons of several tests.
const (
	processes      = "rights and limits of processes are enforced by the kernel"
	kernelFiles    = "the test compares with the kernel's files in sysfs"
	interfaces     = "the test changes a network interface of the kernel, or uses its routes"
	deviceClock    = "the device has no clock"
	sharedDomains  = "an XRC domain belongs to one open device"
	allocations    = "the allocations of the device are counted as well"
	onDemandPaging = "the machine has no on-demand paging"
)
