package prm

// The initialization segment: the registers at the start of BAR 0.
var (
	InitSeg                      = layout("initial_seg", 0x1018)
	InitSegFWRevMinor            = InitSeg.field("fw_rev_minor", 0x0, 0, 16)
	InitSegFWRevMajor            = InitSeg.field("fw_rev_major", 0x2, 0, 16)
	InitSegCmdInterfaceRev       = InitSeg.field("cmd_interface_rev", 0x4, 0, 16)
	InitSegFWRevSubminor         = InitSeg.field("fw_rev_subminor", 0x6, 0, 16)
	InitSegCmdqPhyAddrHigh       = InitSeg.field("cmdq_phy_addr_63_32", 0x10, 0, 32)
	InitSegCmdqPhyAddrLow        = InitSeg.field("cmdq_phy_addr_31_12", 0x14, 0, 20)
	InitSegNICInterface          = InitSeg.field("nic_interface", 0x16, 5, 3) // drivers use three bits; 7 is a reset
	InitSegLogCmdqSize           = InitSeg.field("log_cmdq_size", 0x17, 0, 4)
	InitSegLogCmdqStride         = InitSeg.field("log_cmdq_stride", 0x17, 4, 4)
	InitSegCommandDoorbellVector = InitSeg.field("command_doorbell_vector", 0x18, 0, 32)
	InitSegInitializing          = InitSeg.field("initializing", 0x1fc, 0, 1)
	InitSegFWResetSupported      = InitSeg.field("fw_reset_supported", 0x1fc, 1, 1)
	InitSegNICInterfaceSupported = InitSeg.field("nic_interface_supported", 0x1fc, 5, 3)
	InitSegHealth                = InitSeg.nest("health_buffer", 0x200, Health)
	InitSegInternalTimer         = InitSeg.field("internal_timer", 0x1000, 0, 64)
	InitSegHealthSyndrome        = InitSeg.field("health_syndrome", 0x1010, 0, 8)
	InitSegHealthCounter         = InitSeg.field("health_counter", 0x1011, 0, 24)
)

// The health buffer, which describes the firmware's last failure.
var (
	Health              = layout("health_buffer", 0x40)
	HealthAssertExitPtr = Health.field("assert_existptr", 0x20, 0, 32)
	HealthAssertCallRA  = Health.field("assert_callra", 0x24, 0, 32)
	HealthTime          = Health.field("time", 0x2c, 0, 32)
	HealthFWVersion     = Health.field("fw_version", 0x30, 0, 32)
	HealthHWID          = Health.field("hw_id", 0x34, 0, 32)
	HealthRFR           = Health.field("rfr", 0x38, 0, 1)
	HealthValid         = Health.field("valid", 0x38, 4, 1)
	HealthSeverity      = Health.field("severity", 0x38, 5, 3)
	HealthIriscIndex    = Health.field("irisc_index", 0x3c, 0, 8)
	HealthSyndrome      = Health.field("synd", 0x3d, 0, 8)
	HealthExtSyndrome   = Health.field("ext_synd", 0x3e, 0, 16)
)
