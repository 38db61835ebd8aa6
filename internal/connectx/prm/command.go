package prm

// The header of all inputs.
var (
	Input     = layout("input", 0x8)
	CmdOpcode = Input.field("opcode", 0x0, 0, 16)
	CmdUID    = Input.field("uid", 0x2, 0, 16)
	CmdOpMod  = Input.field("op_mod", 0x6, 0, 16)
)

// The header of all outputs.
var (
	Output      = layout("output", 0x8)
	CmdStatus   = Output.field("status", 0x0, 0, 8)
	CmdSyndrome = Output.field("syndrome", 0x4, 0, 32)
)

// input returns the layout of a command's input, which starts with Input.
func input(name string, size int) *Layout { return begin(name, size, Input) }

// output returns the layout of a command's output, which starts with Output.
func output(name string, size int) *Layout { return begin(name, size, Output) }

func begin(name string, size int, head *Layout) *Layout {
	l := layout(name, size)
	l.fields = append(l.fields, head.fields...)
	return l
}
