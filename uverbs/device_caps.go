package uverbs

// DeviceCapFlags are features of a device: IBV_DEVICE_*. The lower 32 bits are C's device_cap_flags, and all of
// them its device_cap_flags_ex.
type DeviceCapFlags uint64

// The features of devices.
const (
	DeviceResizeMaxWR         DeviceCapFlags = 1 << 0
	DeviceBadPKeyCntr         DeviceCapFlags = 1 << 1
	DeviceBadQKeyCntr         DeviceCapFlags = 1 << 2
	DeviceRawMulti            DeviceCapFlags = 1 << 3
	DeviceAutoPathMig         DeviceCapFlags = 1 << 4
	DeviceChangePhyPort       DeviceCapFlags = 1 << 5
	DeviceUDAVPortEnforce     DeviceCapFlags = 1 << 6
	DeviceCurrQPStateMod      DeviceCapFlags = 1 << 7
	DeviceShutdownPort        DeviceCapFlags = 1 << 8
	DeviceInitType            DeviceCapFlags = 1 << 9
	DevicePortActiveEvent     DeviceCapFlags = 1 << 10
	DeviceSysImageGUID        DeviceCapFlags = 1 << 11
	DeviceRCRNRNAKGen         DeviceCapFlags = 1 << 12
	DeviceSRQResize           DeviceCapFlags = 1 << 13
	DeviceNNotifyCQ           DeviceCapFlags = 1 << 14
	DeviceMemWindow           DeviceCapFlags = 1 << 17
	DeviceUDIPCsum            DeviceCapFlags = 1 << 18
	DeviceXRC                 DeviceCapFlags = 1 << 20
	DeviceMemMgtExtensions    DeviceCapFlags = 1 << 21
	DeviceMemWindowType2A     DeviceCapFlags = 1 << 23
	DeviceMemWindowType2B     DeviceCapFlags = 1 << 24
	DeviceRCIPCsum            DeviceCapFlags = 1 << 25
	DeviceRawIPCsum           DeviceCapFlags = 1 << 26
	DeviceManagedFlowSteering DeviceCapFlags = 1 << 29
	DeviceRawScatterFCS       DeviceCapFlags = 1 << 34
	DevicePCIWriteEndPadding  DeviceCapFlags = 1 << 36
	DeviceFlushGlobal         DeviceCapFlags = 1 << 38
	DeviceFlushPersistent     DeviceCapFlags = 1 << 39
	DeviceAtomicWrite         DeviceCapFlags = 1 << 40
)

// PortCapFlags are features of a port. The bits are those of ibv_port_cap_flags (infiniband/verbs.h).
type PortCapFlags uint32

// PortCapFlags2 are further features of a port. The bits are those of ibv_port_cap_flags2.
type PortCapFlags2 uint16

// ODPFlags are the kinds of on-demand paging that a device supports: ibv_odp_general_caps.
type ODPFlags uint64

// The kinds of on-demand paging.
const (
	ODPSupport  ODPFlags = 1 << 0 // of registered ranges
	ODPImplicit ODPFlags = 1 << 1 // of all memory: PD.RegImplicit
)

// ODPOps are operations that may use on-demand memory: ibv_odp_transport_cap_bits.
type ODPOps uint32

// The operations.
const (
	ODPSend        ODPOps = 1 << 0
	ODPRecv        ODPOps = 1 << 1
	ODPWrite       ODPOps = 1 << 2
	ODPRead        ODPOps = 1 << 3
	ODPAtomic      ODPOps = 1 << 4
	ODPSRQRecv     ODPOps = 1 << 5
	ODPFlush       ODPOps = 1 << 6
	ODPAtomicWrite ODPOps = 1 << 7
)
