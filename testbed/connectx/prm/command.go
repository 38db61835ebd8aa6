package prm

// What all commands begin with.
var (
	Input     = layout("input", 0x8)
	CmdOpcode = Input.field("opcode", 0x0, 0, 16)
	CmdUID    = Input.field("uid", 0x2, 0, 16)
	CmdOpMod  = Input.field("op_mod", 0x6, 0, 16)
)

// What all outputs begin with.
var (
	Output      = layout("output", 0x8)
	CmdStatus   = Output.field("status", 0x0, 0, 8)
	CmdSyndrome = Output.field("syndrome", 0x4, 0, 32)
)

// input is the layout of a command's input, which begins with Input.
func input(name string, size int) *Layout { return begin(name, size, Input) }

// output is the layout of a command's output, which begins with Output.
func output(name string, size int) *Layout { return begin(name, size, Output) }

func begin(name string, size int, head *Layout) *Layout {
	l := layout(name, size)
	l.fields = append(l.fields, head.fields...)
	return l
}
