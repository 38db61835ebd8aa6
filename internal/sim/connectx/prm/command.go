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
func input(name string, size int) *Layout {
	return layout(name, size).begin(CmdOpcode, CmdUID, CmdOpMod)
}

// output returns the layout of a command's output, which starts with Output.
func output(name string, size int) *Layout { return layout(name, size).begin(CmdStatus, CmdSyndrome) }

// begin adds fields of a header to the layout. They are arguments, so that they are initialized before.
func (l *Layout) begin(head ...Field) *Layout {
	for _, f := range head {
		l.fields = append(l.fields, entry{Field: f})
	}
	return l
}
