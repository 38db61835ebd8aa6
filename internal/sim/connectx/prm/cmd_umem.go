package prm

// A user's memory (umem): a list of pages in which DevX objects have their rings and doorbell
// records, or the data of a memory key. The field page_offset is in bytes.
var (
	UMem            = layout("umem", 0x20)
	UMemLogPageSize = UMem.field("log_page_size", 0x13, 3, 5)
	UMemPageOffset  = UMem.field("page_offset", 0x14, 0, 32)
	UMemNumOfMTT    = UMem.field("num_of_mtt", 0x18, 0, 64)
	UMemMTT         = UMem.tail("mtt", 0x20, 64)
)

var (
	CreateUMemIn     = input("create_umem", 0x30)
	CreateUMemInUMem = CreateUMemIn.nest("umem", 0x10, UMem)
)

var (
	CreateUMemOut       = output("create_umem", 0x10)
	CreateUMemOutUMemID = CreateUMemOut.field("umem_id", 0x9, 0, 24)
)

var (
	DestroyUMemIn       = input("destroy_umem", 0x10)
	DestroyUMemInUMemID = DestroyUMemIn.field("umem_id", 0x9, 0, 24)
)

var DestroyUMemOut = output("destroy_umem", 0x10)
