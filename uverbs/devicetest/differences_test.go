package devicetest

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/verbstest"
)

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

	"GIDs":                                       kernelFiles,
	"ParityDevice/test_query_pkey":               kernelFiles,
	"ParityDevice/test_get_pkey_index":           kernelFiles,
	"ParityDevice/test_query_gid_table_bad_flow": kernelFiles,
	"ParityDevice/test_query_port":               kernelFiles,
	"Mcast":                                      interfaces,
	"PortEvents":                                 interfaces,
	"UDMTU":                                      interfaces,
	"AHExplained":                                interfaces,
	"Events/port_active":                         interfaces,
	"Events/port_error":                          interfaces,
	"Events/GID_table_change":                    interfaces,
	"Events/device_speed_change":                 interfaces,

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

	"ParityDC/test_odp_dc_traffic": onDemandPaging,

	"ParitySharedPD":                           secondContext,
	"ParityDevice/test_import_dm":              secondContext,
	"ParityDevice/test_multi_process_alloc_dm": "a machine in memory exists in one process",
}

// ethernetOnly has the tests that machines in memory run on Ethernet only, with the reason.
var ethernetOnly = map[string]string{
	"EveryGID": "the port has one GID, which is not an address of RoCE",
}

// broken has the rules of package verbstest that tests break on purpose, with what they do.
var broken = map[string][]verbstest.Rule{
	"AtomicErrors":       {verbstest.LocalAccess, verbstest.RemoteAccess}, // atomics fail in each way
	"BusyAfterWait":      {verbstest.Destination},                         // the peers are not connected
	"CloseRace":          {verbstest.LocalKey, blueFlame, verbstest.LocalAccess, verbstest.RemoteAccess},
	"CQOverrunEvent":     {verbstest.CQOverrun, verbstest.CQCapacity}, // a CQ overruns
	"DCErrors":           {verbstest.QKey, verbstest.LocalKey, verbstest.RemoteAccess},
	"Drain":              {verbstest.ReceiveLate, verbstest.Unsignaled}, // requests remain until the QP fails
	"DrainShared":        {verbstest.ReceiveLate, verbstest.Unsignaled},
	"DrainFullCQ":        {verbstest.ReceiveLate, verbstest.Unsignaled},
	"DrainSmallCQ":       {verbstest.CQCapacity, verbstest.Unsignaled},
	"Events":             {verbstest.LocalKey, verbstest.CQOverrun, verbstest.CQCapacity, verbstest.RemoteAccess},
	"MWErrors":           {verbstest.BadRequest},   // binds fail
	"MWLimits":           {verbstest.RemoteAccess}, // windows limit an access
	"MWRemoteInvalidate": {verbstest.RemoteAccess}, // an invalidated key is used
	"MWType1":            {verbstest.RemoteAccess}, // a window that is not bound is used
	"MWType2":            {verbstest.RemoteAccess},
	"ParityAtomic": {verbstest.LocalKey, verbstest.LocalAccess,
		verbstest.RemoteAccess}, // atomics fail in each way
	"ParityDC":     {verbstest.LocalAccess},                        // requests use a region of another PD
	"ParityMR":     {verbstest.LocalKey, verbstest.RemoteAccess},   // an invalidated key is used
	"ParityQPEx":   {verbstest.CQCapacity, verbstest.RemoteAccess}, // a queue is filled; a key is invalidated
	"RemoteErrors": {verbstest.LocalKey, verbstest.LocalAccess, verbstest.RemoteAccess, verbstest.ReceiveLength},
	"ReregAccess":  {verbstest.RemoteAccess}, // a right is revoked
	"ReregPD":      {verbstest.RemoteAccess}, // the region moves to another PD
	"Stress":       {verbstest.ReceiveLate},  // senders do not wait for receives
	"StressSRQ":    {verbstest.ReceiveLate},
	"StressClose": {verbstest.LocalKey, blueFlame,
		verbstest.ReceiveLate, verbstest.ReceiveOverlap, verbstest.RemoteAccess, verbstest.LocalAccess},
	"UCRevive":       {verbstest.LocalKey},      // a request fails
	"UCWriteLost":    {verbstest.RemoteAccess},  // a WRITE to a wrong key is lost
	"UDQKey":         {verbstest.QKey},          // a datagram with a wrong Q_Key is lost
	"UDShortReceive": {verbstest.ReceiveLength}, // a datagram is too long
}

// blueFlame is broken if a QP is closed during a post.
const blueFlame = verbstest.Rule(engine.RuleBlueFlame)

// Reasons of several tests.
const (
	processes      = "rights and limits of processes are enforced by the kernel"
	kernelFiles    = "the test compares with the kernel's files in sysfs"
	interfaces     = "the test changes a network interface of the kernel, or uses its routes"
	secondContext  = "the machine has no second context of a descriptor"
	deviceClock    = "the device has no clock"
	sharedDomains  = "an XRC domain belongs to one open device"
	allocations    = "the allocations of the device are counted as well"
	onDemandPaging = "the machine has no on-demand paging"
)
