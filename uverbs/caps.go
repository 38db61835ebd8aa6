package uverbs

// The bits of DeviceAttr.CapFlags and CapFlagsEx: IBV_DEVICE_*. Bits above 31 are in CapFlagsEx
// only.
const (
	DeviceResizeMaxWR         = 1 << 0
	DeviceBadPKeyCntr         = 1 << 1
	DeviceBadQKeyCntr         = 1 << 2
	DeviceRawMulti            = 1 << 3
	DeviceAutoPathMig         = 1 << 4
	DeviceChangePhyPort       = 1 << 5
	DeviceUDAVPortEnforce     = 1 << 6
	DeviceCurrQPStateMod      = 1 << 7
	DeviceShutdownPort        = 1 << 8
	DeviceInitType            = 1 << 9
	DevicePortActiveEvent     = 1 << 10
	DeviceSysImageGUID        = 1 << 11
	DeviceRCRNRNAKGen         = 1 << 12
	DeviceSRQResize           = 1 << 13
	DeviceNNotifyCQ           = 1 << 14
	DeviceMemWindow           = 1 << 17
	DeviceUDIPCsum            = 1 << 18
	DeviceXRC                 = 1 << 20
	DeviceMemMgtExtensions    = 1 << 21
	DeviceMemWindowType2A     = 1 << 23
	DeviceMemWindowType2B     = 1 << 24
	DeviceRCIPCsum            = 1 << 25
	DeviceRawIPCsum           = 1 << 26
	DeviceManagedFlowSteering = 1 << 29
	DeviceRawScatterFCS       = 1 << 34
	DevicePCIWriteEndPadding  = 1 << 36
	DeviceFlushGlobal         = 1 << 38
	DeviceFlushPersistent     = 1 << 39
	DeviceAtomicWrite         = 1 << 40
)

// The bits of ODPCaps.General.
const (
	ODPSupport  = 1 << 0 // on-demand paging of registered ranges
	ODPImplicit = 1 << 1 // on-demand paging of all memory: PD.RegImplicit
)

// The bits of ODPCaps.RC, UC, UD and XRC: the operations that may use on-demand memory.
const (
	ODPSend        = 1 << 0
	ODPRecv        = 1 << 1
	ODPWrite       = 1 << 2
	ODPRead        = 1 << 3
	ODPAtomic      = 1 << 4
	ODPSRQRecv     = 1 << 5
	ODPFlush       = 1 << 6
	ODPAtomicWrite = 1 << 7
)
