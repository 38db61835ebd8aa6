package fabric

import (
	"encoding/json"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// Opcodes are opcodes of the base transport header. In JSON they are names such
// as "RC_SEND_ONLY".
type Opcodes []roce.Opcode

// opcodeNames maps names to opcodes.
var opcodeNames = func() map[string]roce.Opcode {
	names := make(map[string]roce.Opcode)
	for i := range 256 {
		if o := roce.Opcode(i); o.Known() {
			names[o.String()] = o
		}
	}
	return names
}()

// MarshalJSON implements json.Marshaler.
func (o Opcodes) MarshalJSON() ([]byte, error) {
	names := make([]string, len(o))
	for i, code := range o {
		names[i] = code.String()
	}
	return json.Marshal(names)
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Opcodes) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return errorf(ErrParam, `want a list of opcodes such as "RC_SEND_ONLY": %v`, err)
	}
	*o = nil
	for _, name := range names {
		code, ok := opcodeNames[name]
		if !ok {
			return errorf(ErrParam, `opcode %q: want a name such as "RC_SEND_ONLY"`, name)
		}
		*o = append(*o, code)
	}
	return nil
}
