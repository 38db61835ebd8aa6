package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// ticksPerMillisecond is the rate of the internal timer: nanoseconds.
const ticksPerMillisecond = 1_000_000

// offered has the capabilities of both link layers with their maximum values. A
// capability that is not in the list is not implemented.
var offered = []Capability{
	// Sizes and numbers of objects.
	{CapGeneral, prm.HCACapLogMaxQP, 17},
	{CapGeneral, prm.HCACapLogMaxQPSize, 15},
	{CapGeneral, prm.HCACapLogMaxSRQ, 16},
	{CapGeneral, prm.HCACapLogMaxSRQSize, 15},
	{CapGeneral, prm.HCACapLogMaxCQ, 16},
	{CapGeneral, prm.HCACapLogMaxCQSize, 22},
	{CapGeneral, prm.HCACapLogMaxMKey, 18},
	{CapGeneral, prm.HCACapLogMaxEQ, 6},
	{CapGeneral, prm.HCACapLogMaxEQSize, 22},
	{CapGeneral, prm.HCACapLogMaxKLMListSize, 16},
	{CapGeneral, prm.HCACapLogMaxMrwSize, 32},
	{CapGeneral, prm.HCACapLogMaxPD, 16},
	{CapGeneral, prm.HCACapLogMaxXRCD, 16},
	{CapGeneral, prm.HCACapLogMaxRMP, 16},
	{CapGeneral, prm.HCACapLogMaxTransportDomain, 8},
	{CapGeneral, prm.HCACapLogMaxMCG, 12},
	{CapGeneral, prm.HCACapMaxQPMCG, 240},
	{CapGeneral, prm.HCACapMaxQPCnt, 16},
	{CapGeneral, prm.HCACapMaxWQESizeSQ, 1024},
	{CapGeneral, prm.HCACapMaxWQESizeRQ, 512},
	{CapGeneral, prm.HCACapLogMaxMsg, 30},
	{CapGeneral, prm.HCACapLogMaxRAReqQP, 4},
	{CapGeneral, prm.HCACapLogMaxRAResQP, 4},
	{CapGeneral, prm.HCACapMaxIndirection, 2},
	{CapGeneral, prm.HCACapNumPorts, 1},
	{CapGeneral, prm.HCACapVHCAID, 1},
	{CapGeneral, prm.HCACapPKeyTableSize, 0}, // 128
	{CapGeneral, prm.HCACapLocalCaAckDelay, 16},

	// Registers.
	{CapGeneral, prm.HCACapBf, 1},
	{CapGeneral, prm.HCACapLogBfRegSize, 9},
	{CapGeneral, prm.HCACapLogPGSize, 12},
	{CapGeneral, prm.HCACapUARSize, logMaxBAR - 20},
	{CapGeneral, prm.HCACapUAR4k, 1},
	{CapGeneral, prm.HCACapNumOfUARsPerPage, 1 << maxLogUARPage},
	{CapGeneral, prm.HCACapDeviceFrequencyKhz, ticksPerMillisecond},

	// Transports and their options.
	{CapGeneral, prm.HCACapRC, 1},
	{CapGeneral, prm.HCACapUC, 1},
	{CapGeneral, prm.HCACapUD, 1},
	{CapGeneral, prm.HCACapXRC, 1},
	{CapGeneral, prm.HCACapAPM, 1},
	{CapGeneral, prm.HCACapBlockLBMC, 1},
	{CapGeneral, prm.HCACapSetDethSqpn, 1},
	{CapGeneral, prm.HCACapECESupport, 1},

	// Memory.
	{CapGeneral, prm.HCACapAtomic, 1},
	{CapGeneral, prm.HCACapIMAICL, 1},
	{CapGeneral, prm.HCACapFixedBufferSize, 1},
	{CapGeneral, prm.HCACapUMRPtrRLKY, 1},
	{CapGeneral, prm.HCACapUMRExtendedTranslationOffset, 1},
	{CapGeneral, prm.HCACapDumpFillMKey, 1},

	// Completions.
	{CapGeneral, prm.HCACapCQEVersion, 1},
	{CapGeneral, prm.HCACapCQOI, 1},
	{CapGeneral, prm.HCACapCQResize, 1},
	{CapGeneral, prm.HCACapCQModeration, 1},
	{CapGeneral, prm.HCACapSctrDataCQE, 1},

	{CapAtomic, prm.AtomicCapSupportedAtomicReq8BEndiannessMode1, 1},
	{CapAtomic, prm.AtomicCapAtomicOperations, 3}, // compare and swap, fetch and add
	{CapAtomic, prm.AtomicCapAtomicSizeQP, 8},     // bytes
}

// offeredDeviceMemory are capabilities of device memory (MEMIC). A device with
// device_memory=0 has none.
var offeredDeviceMemory = []Capability{
	{CapGeneral, prm.HCACapDeviceMemory, 1},
	{CapDevMem, prm.DeviceMemCapMEMIC, 1},
	{CapDevMem, prm.DeviceMemCapLogMinMEMICAllocSize, 6}, // engine.DeviceMemoryUnit
	{CapDevMem, prm.DeviceMemCapLogMaxMEMICAddrAlignment, engine.MaxLogAlignment},
	{CapDevMem, prm.DeviceMemCapMEMICBARStartAddr, 1 << logMaxBAR},
	{CapDevMem, prm.DeviceMemCapMEMICBARSize, deviceMemory},
	{CapDevMem, prm.DeviceMemCapMaxMEMICSize, deviceMemory},
	{CapDevMem, prm.DeviceMemCapMEMICOperations, 1<<engine.MemoryOps - 1},
	{CapDevMem, prm.DeviceMemCapMEMICIncrementSizes, 1}, // one byte
	{CapDevMem, prm.DeviceMemCapMEMICTestAndSetSizes, 1},
}

// restrictions are capabilities that disable something, with their maximum values. A device has those that it is
// configured with. Without changes of the size of pages by work requests (UMR), the driver registers memory by commands
// only, and the kernel's users of RDMA that register memory for each request, such as NVMe, refuse the device.
var restrictions = []Capability{
	{CapGeneral, prm.HCACapUMRModifyEntitySizeDisabled, 1},
}

// Bits of the capabilities of memory on demand.
const (
	odpSend = 1 << 5 >> iota
	odpReceive
	odpWrite
	odpRead
	odpAtomic
	odpSRQ
)

// offeredODP are capabilities of a device with memory on demand.
var offeredODP = []Capability{
	{CapGeneral, prm.HCACapPG, 1},
	{CapGeneral, prm.HCACapNullMKey, 1},
	{CapODP, prm.ODPCapRC, odpSend | odpReceive | odpWrite | odpRead | odpAtomic | odpSRQ},
	{CapODP, prm.ODPCapUD, odpSend | odpSRQ},
	{CapODP, prm.ODPCapXRC, odpSend | odpReceive | odpWrite | odpRead | odpAtomic | odpSRQ},
	{CapODP, prm.ODPCapDC, odpSend | odpReceive | odpWrite | odpRead | odpAtomic | odpSRQ},
}

// offeredInfiniBand are capabilities of InfiniBand only.
var offeredInfiniBand = []Capability{
	{CapGeneral, prm.HCACapIBVirt, 1},
	{CapGeneral, prm.HCACapGIDTableSize, 0}, // 8
}

// offeredEthernet are capabilities of Ethernet only.
var offeredEthernet = []Capability{
	{CapGeneral, prm.HCACapPortType, 1},
	{CapGeneral, prm.HCACapEthNetOffloads, 1},
	{CapGeneral, prm.HCACapNICFlowTable, 1},
	{CapGeneral, prm.HCACapRoCE, 1},
	{CapGeneral, prm.HCACapLogMaxRQ, 12},
	{CapGeneral, prm.HCACapLogMaxSQ, 12},
	{CapGeneral, prm.HCACapLogMaxTIR, 12},
	{CapGeneral, prm.HCACapLogMaxTIS, 12},
	{CapGeneral, prm.HCACapLogMaxRQT, 10},
	{CapGeneral, prm.HCACapLogMaxRQTSize, 8},
	{CapGeneral, prm.HCACapLogMaxTISPerSQ, 3},
	{CapGeneral, prm.HCACapMaxTC, 1},
	{CapGeneral, prm.HCACapLogMaxWQSize, 15}, // as of QPs: raw Ethernet QPs consist of these queues
	{CapGeneral, prm.HCACapLogMaxStrideSizeRQ, 9},
	{CapGeneral, prm.HCACapLogMinStrideSizeRQ, 4},
	{CapGeneral, prm.HCACapLogMaxStrideSizeSQ, 6},
	{CapGeneral, prm.HCACapLogMinStrideSizeSQ, 6},
	{CapGeneral, prm.HCACapLogMaxCurrentUCList, 7},
	{CapGeneral, prm.HCACapLogMaxCurrentMCList, 7},
	{CapGeneral, prm.HCACapLogMaxVLANList, 7},
	{CapGeneral, prm.HCACapLogMaxL2Table, 5},
	{CapGeneral, prm.HCACapDisableLocalLBUC, 1},
	{CapGeneral, prm.HCACapDisableLocalLBMC, 1},

	{CapEthernet, prm.EthCapCsumCap, 1},
	{CapEthernet, prm.EthCapVLANCap, 1},
	{CapEthernet, prm.EthCapMaxLSOCap, 16}, // required by the driver
	{CapEthernet, prm.EthCapRSSIndTblCap, 8},
	{CapEthernet, prm.EthCapWQEInlineMode, 2},
	{CapEthernet, prm.EthCapSelfLBEnModifiable, 1},

	{CapGeneral, prm.HCACapRTS2RTSQPUDPSport, 1},

	{CapRoCE, prm.RoCECapRoCEVersion, 5}, // versions 1 and 2
	{CapRoCE, prm.RoCECapL3Type, 6},      // IPv4 and IPv6
	{CapRoCE, prm.RoCECapRRoCEDestUDPPort, 4791},
	{CapRoCE, prm.RoCECapRRoCEMinSrcUDPPort, 0xc000},
	{CapRoCE, prm.RoCECapRRoCEMaxSrcUDPPort, 0xffff},
	{CapRoCE, prm.RoCECapRoCEAddressTableSize, 64},

	received(prm.FlowTableCapFtSupport, 1),
	received(prm.FlowTableCapFlowModifyEn, 1),
	received(prm.FlowTableCapModifyRoot, 1),
	received(prm.FlowTableCapIdentifiedMissTableMode, 1),
	received(prm.FlowTableCapFlowTableModify, 1),
	received(prm.FlowTableCapMaxFtLevel, 64),
	received(prm.FlowTableCapLogMaxFtSize, logFlowTableSize),
	received(prm.FlowTableCapLogMaxFtNum, logFlowTables),
	received(prm.FlowTableCapLogMaxDestination, 8),
	received(prm.FlowTableCapLogMaxFlow, logFlowTableSize),
}

// received returns a capability of NIC receive flow tables.
func received(f prm.Field, v uint64) Capability {
	return Capability{CapFlowTable, f.Within(prm.FlowTableNICCapReceive), v}
}

const (
	logFlowTables    = 8
	logFlowTableSize = 16
)
